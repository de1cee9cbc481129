# mov eax, 20 (getpid of i386); int 0x80; ret. A filter that looks at numbers alone takes 20 for writev.
# In a child: whoever guards the door may end who knocks.
import mmap, platform, signal
if platform.machine() != "x86_64": na("only x86_64 has this door")
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
door = ctypes.CFUNCTYPE(ctypes.c_int)(address)
signal.signal(signal.SIGSEGV, signal.SIG_DFL)
knock("the 32-bit door", lambda: door())
