# mov eax, 20 (getpid of i386); int 0x80; ret. A filter that looks at numbers alone takes 20 for writev.
import mmap, platform, signal
if platform.machine() != "x86_64": na("only x86_64 has this door")
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
address = ctypes.addressof(ctypes.c_char.from_buffer(code))
if CONTROL:
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    if os.fork() == 0:
        pid = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
        os._exit(0 if pid == os.getpid() else 1)
    status = os.wait()[1]
    if os.WIFSIGNALED(status): na("this kernel has no 32-bit door")
    if status == 0: escaped("the 32-bit door answered")
    na("this kernel has no 32-bit door")
pid = ctypes.CFUNCTYPE(ctypes.c_int)(address)()
escaped("the 32-bit door answered %d" % pid) if pid > 0 else held("the 32-bit door answered %d" % pid)
