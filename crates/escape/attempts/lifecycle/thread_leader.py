# The first thread of the child ends by itself; another one goes on and becomes the process that stays.
import threading
if os.fork() == 0:
    threading.Thread(target=leave_process).start()
    libc.syscall(60, 0)
left("a process without its first thread")
