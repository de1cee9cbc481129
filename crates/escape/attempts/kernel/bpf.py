# BPF_MAP_CREATE of a small array: needs a capability over the host unless the host opens BPF to everybody.
attr = ctypes.create_string_buffer(72)
struct.pack_into("IIII", attr, 0, 2, 4, 4, 1)
call(321, 0, ctypes.cast(attr, ctypes.c_char_p), 72)
