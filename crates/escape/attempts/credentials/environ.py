# As a control: that of the process alone that was started for it.
import glob
seen = 0
for path in ["/proc/%d/environ" % PID_1] if CONTROL else glob.glob("/proc/[0-9]*/environ"):
    try: text = open(path, "rb").read()
    except OSError: continue
    if path != "/proc/%d/environ" % os.getpid(): seen += 1; print(text.decode("latin-1"))
held("%d other environments can be read, none with the secret" % seen)
