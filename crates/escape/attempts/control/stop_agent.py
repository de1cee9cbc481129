# A control is told by the state of the process; a box by an end that is told at all.
import signal
target = PID_1
try: os.kill(target, signal.SIGSTOP); answer = "taken"
except OSError as error: answer = refused(error)
time.sleep(0.1)
try: state = open("/proc/%d/stat" % target).read().rsplit(")", 1)[1].split()[0]
except OSError: state = "not visible"
if state == "T": escaped("process %d is stopped" % target)
held("SIGSTOP to %d: %s, state %s" % (target, answer, state))
