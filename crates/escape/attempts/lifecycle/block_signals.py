import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
time.sleep(4)
escaped("alive after four seconds")
