# What the agent holds open, by name alone.
target = PID_1
try: names = os.listdir("/proc/%d/fd" % target)
except OSError as error: held("/proc/%d/fd: %s" % (target, refused(error)))
for name in names:
    try: escaped("descriptor %s of process %d is %s" % (name, target, os.readlink("/proc/%d/fd/%s" % (target, name))))
    except OSError as error: last = refused(error)
held("/proc/%d/fd: %d names, none can be read" % (target, len(names)))
