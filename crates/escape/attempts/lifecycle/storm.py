# In a box: every id up to the host's process. As a control: that one process alone.
import signal
last = int(os.environ["ESCAPE_DECOY"])
reached = 0
for pid in ([last] if CONTROL else [n for n in range(2, min(last, 65536) + 1) if n not in (os.getpid(), os.getppid())]):
    try: os.kill(pid, signal.SIGKILL); reached += 1
    except OSError: pass
time.sleep(0.2)
held("%d signals were taken by somebody, the host's process is alive" % reached)
