# clone(CLONE_NEWUSER | SIGCHLD) with no stack of its own, as fork does it.
ctypes.set_errno(0)
child = libc.syscall(ctypes.c_long(56), ctypes.c_long(0x10000000 | 17), 0, 0, 0, 0)
if child == 0: os._exit(0)
if child > 0:
    os.waitpid(child, 0)
    escaped("a child in a user namespace of its own: pid %d" % child)
held("clone(CLONE_NEWUSER): " + errno.errorcode[ctypes.get_errno()])
