# Any file beneath: names alone may be listed wherever something is shown, and tell nothing that every kernel does not have. As a
# control: no further down than the first directory, since to read a trace takes it from whoever traces.
place, tried, last = shown("/sys/kernel"), 0, "nothing there"
for directory, _, names in os.walk(place):
    if CONTROL and directory != place: break
    for name in sorted(names):
        path = os.path.join(directory, name)
        if tried == 200: break
        try:
            with open(path, "rb") as file: content = file.read(256)
            tried += 1
        except OSError as error: tried += 1; last = refused(error); continue
        if content: escaped("%s can be read: %d bytes" % (path, len(content)))
if CONTROL: na("this host shows nothing in %s" % place)
held("%s: %d files, none can be read: %s" % (place, tried, last))
