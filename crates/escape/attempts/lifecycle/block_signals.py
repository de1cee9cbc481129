import signal
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
begun(); time.sleep(4)
escaped("alive after four seconds")
