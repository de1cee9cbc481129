import resource
target = PID_1
try: resource.prlimit(target, resource.RLIMIT_NOFILE, (64, 64))
except OSError as error: held("prlimit %d: %s" % (target, refused(error)))
escaped("limits of process %d were changed" % target)
