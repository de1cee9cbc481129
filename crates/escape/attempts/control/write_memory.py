# process_vm_writev: whether one may is asked before where. The control writes to a child of its own, in which the place is the same.
target = 1
place = ctypes.create_string_buffer(8)
if CONTROL:
    target = os.fork()
    if target == 0: time.sleep(2); os._exit(0)
piece = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(place), 8))
wrote, error = syscall(311, target, ctypes.c_char_p(ctypes.addressof(piece)), 1, ctypes.c_char_p(ctypes.addressof(piece)), 1, 0)
if CONTROL and error == "ENOSYS": na("a filter of system calls around this caller may be what answers: ENOSYS") if filtered() else nothing_there("this kernel has no process_vm_writev")
if error in ("EPERM", "ENOSYS", "ESRCH"): held("process_vm_writev to process %d: %s" % (target, error))
escaped("process_vm_writev to process %d: %s" % (target, error or "%d bytes" % wrote))
