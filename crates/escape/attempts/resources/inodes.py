place = "/tmp/many"
if CONTROL:
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, b"size=64m,nr_inodes=0") != 0: na("no file system for the control")
os.mkdir(place)
directory = os.open(place, os.O_RDONLY)
for count in range(70000):
    try: os.mknod("%d" % count, 0o600, dir_fd=directory)
    except OSError as error: held("%d files, then %s" % (count, refused(error)))
escaped("70000 files")
