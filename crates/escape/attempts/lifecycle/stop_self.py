# A child wakes us after four seconds, if there is anybody left to wake.
import signal
parent = os.getpid(); begun()
if os.fork() == 0:
    time.sleep(4)
    os.kill(parent, signal.SIGCONT)
    os._exit(0)
os.kill(parent, signal.SIGSTOP)
escaped("woken after four seconds")
