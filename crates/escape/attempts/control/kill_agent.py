import signal
target = PID_1
try: os.kill(target, signal.SIGKILL); answer = "taken and ignored"
except OSError as error: answer = refused(error)
time.sleep(0.2)
held("SIGKILL to %d: %s" % (target, answer))
