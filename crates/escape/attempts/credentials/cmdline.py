# As a control: that of the process alone that was started for it.
import glob
seen = 0
for path in ["/proc/%d/cmdline" % PID_1] if CONTROL else glob.glob("/proc/[0-9]*/cmdline"):
    try: print(open(path, "rb").read().decode("latin-1")); seen += 1
    except OSError: continue
held("%d processes in sight, none with the secret" % seen)
