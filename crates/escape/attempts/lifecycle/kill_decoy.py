import signal
pid = int(os.environ["ESCAPE_DECOY"])
try: os.kill(pid, signal.SIGKILL)
except OSError as error: held("kill %d: %s" % (pid, refused(error)))
time.sleep(0.2)
held("a signal to %d was taken by somebody" % pid)
