args = ctypes.create_string_buffer(88)
struct.pack_into("QQQQQ", args, 0, 0x10000000, 0, 0, 0, 17)
ctypes.set_errno(0)
child = libc.syscall(ctypes.c_long(435), ctypes.c_char_p(ctypes.addressof(args)), ctypes.c_long(88))
if child == 0: os._exit(0)
if child > 0:
    os.waitpid(child, 0)
    escaped("a child in a user namespace of its own: pid %d" % child)
held("clone3(CLONE_NEWUSER): " + errno.errorcode[ctypes.get_errno()])
