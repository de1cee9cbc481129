target = PID_1
try: os.open("/proc/%d/mem" % target, os.O_RDWR)
except OSError as error:
    if CONTROL and error.errno in (errno.EACCES, errno.EPERM): na("this host lets nobody trace others (Yama)")
    held("/proc/%d/mem: %s" % (target, refused(error)))
escaped("the memory of process %d can be written" % target)
