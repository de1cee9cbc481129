# A filter that allows everything, with a listener: whoever holds it may answer calls of its own children in their name.
libc.prctl(38, 1, 0, 0, 0)
program = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(program)))
call(317, 1, 8, ctypes.c_char_p(ctypes.addressof(fprog)), absent=("EINVAL",))
