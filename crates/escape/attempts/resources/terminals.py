# Eight processes, because the limit on open files is one of each process, and 100 each, which together is more than a box has. They are
# counted by the kernel for the whole host: a control takes them from a devpts of its own, which leaves the host's its reserve.
MOST, EACH = 8, 100
if CONTROL:
    most, reserve, used = (int(setting("kernel/pty/" + name) or 0) for name in ("max", "reserve", "nr"))
    if most - reserve - used < 2 * MOST * EACH: na("this host has too few terminals to take %d for a moment" % (MOST * EACH))
    if libc.mount(b"none", b"/dev/pts", b"devpts", 0, b"newinstance,ptmxmode=0666") != 0: na("a control cannot have terminals of its own here")
    libc.mount(b"/dev/pts/ptmx", b"/dev/ptmx", None, 4096, None)
told, tell = os.pipe()
hold, release = os.pipe()
children = []
for _ in range(MOST):
    child = os.fork()
    if child == 0:
        os.close(release)
        ends, last = [], "none"
        try:
            while len(ends) < 2 * EACH: ends.extend(os.openpty())
        except OSError as error: last = refused(error)
        os.write(tell, b"%5d %s\n" % (len(ends) // 2, last.encode().ljust(9)[:9]))
        os.read(hold, 1)
        os._exit(0)
    children.append(child)
os.close(tell)
answers = [os.read(told, 16).decode().split() for _ in children]
os.close(release)
for child in children: os.waitpid(child, 0)
count, last = sum(int(answer[0]) for answer in answers if answer), [answer[1] for answer in answers if answer and answer[1] != "none"]
if count >= MOST * EACH: escaped("%d terminals at once" % count)
held("%d terminals, then %s" % (count, last[0] if last else "no answer"))
