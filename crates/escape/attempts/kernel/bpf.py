# BPF_PROG_LOAD of the shortest program (r0 = 0; exit) as a socket filter: it is attached to nothing and goes with this process.
program = ctypes.create_string_buffer(struct.pack("BBhiBBhi", 0xb7, 0, 0, 0, 0x95, 0, 0, 0))
licence, attr = ctypes.create_string_buffer(b"GPL"), ctypes.create_string_buffer(72)
struct.pack_into("IIQQ", attr, 0, 1, 2, ctypes.addressof(program), ctypes.addressof(licence))
call(321, 5, ctypes.cast(attr, ctypes.c_char_p), 72)
