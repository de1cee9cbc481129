import mmap
piece = mmap.mmap(-1, 4 << 20)
address = ctypes.addressof(ctypes.c_char.from_buffer(piece))
result, error = syscall(149, address, 4 << 20)
held("mlock: " + error) if error else escaped("4 MiB are locked")
