import signal
child = os.fork()
if child == 0: leave_process(4)
while NONCE.encode() not in open("/proc/%d/cmdline" % child, "rb").read(): time.sleep(0.01)
os.kill(child, signal.SIGSTOP)
held("a stopped process is left")
