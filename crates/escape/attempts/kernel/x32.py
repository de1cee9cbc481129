# getpid with the x32 bit. In a child: whoever guards the door may end who knocks.
import platform
if platform.machine() != "x86_64": na("only x86_64 has this door")
knock("the x32 door", lambda: syscall(0x40000000 | 39)[0])
