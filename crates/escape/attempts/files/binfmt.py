# Opened and never written. Many hosts have none mounted: a control then mounts one of its own, which a kernel gives every user
# namespace since 6.7, on an empty file system over the place, so that no automount is woken.
place = "/proc/sys/fs/binfmt_misc"
there = any(" %s " % place in line and " - binfmt_misc " in line for line in lines("/proc/self/mountinfo"))
if CONTROL and not there:
    if not any(line.split()[-1:] == ["binfmt_misc"] for line in lines("/proc/filesystems")):
        na("binfmt_misc is not loaded, and a control loads no module") if loads_modules() else nothing_there("this kernel has no binfmt_misc")
    if libc.mount(b"none", b"/proc/sys/fs", b"tmpfs", 0, b"size=1m") != 0: na("cannot cover /proc/sys/fs in the control")
    os.mkdir(place)
    if libc.mount(b"none", place.encode(), b"binfmt_misc", 0, None) != 0:
        na("this host has no binfmt_misc mounted, and its kernel gives a user namespace none: " + errno.errorcode[ctypes.get_errno()])
if HOST_ROOT: mounted(place, "binfmt_misc")
may_open(place + "/register", os.O_WRONLY)
