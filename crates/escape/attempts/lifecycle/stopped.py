import signal
child = os.fork()
# In a session of its own: the kernel hangs up on stopped processes whose group loses its last parent.
if child == 0: os.setsid(); leave_process(4)
while NONCE.encode() not in open("/proc/%d/cmdline" % child, "rb").read(): time.sleep(0.01)
os.kill(child, signal.SIGSTOP)
held("a stopped process is left")
