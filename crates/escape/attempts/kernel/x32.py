# getpid with the x32 bit.
import platform
if platform.machine() != "x86_64": na("only x86_64 has this door")
result, error = syscall(0x40000000 | 39)
if CONTROL and error == "ENOSYS": na("this kernel has no x32 door")
if error: held("x32: " + error)
escaped("the x32 door answered %d" % result)
