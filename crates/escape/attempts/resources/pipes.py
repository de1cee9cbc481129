# Pipes of 1 MiB each, filled: at most 200.
import fcntl
total, ends = 0, []
for _ in range(200):
    try: reader, writer = os.pipe()
    except OSError as error: held("%d MiB in pipes, then %s" % (total >> 20, refused(error)))
    ends.append((reader, writer)); os.set_blocking(writer, False)
    try: fcntl.fcntl(writer, 1031, 1 << 20)
    except OSError: pass
    try:
        while True: total += os.write(writer, b"x" * 65536)
    except BlockingIOError: pass
# The kernel itself keeps the pipes of one user to 64 MiB; a box of 48 must come to its end before.
escaped("%d MiB in pipes in a box of 48" % (total >> 20)) if total > 56 << 20 else held("%d MiB in pipes: they are kept small" % (total >> 20))
