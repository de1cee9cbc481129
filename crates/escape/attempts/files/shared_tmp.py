# Where a test build shows the host's root, its own directories themselves; everybody may write there but for the next layer.
answers = []
for place in ("/tmp", "/dev/shm", "/var/tmp"):
    try: open(HOST_ROOT + place + "/" + NONCE, "w").close()
    except OSError as error: answers.append("%s%s: %s" % (HOST_ROOT, place, refused(error)))
if HOST_ROOT: held(", ".join(answers))
held("written where the box may write; the host's own directories tell")
