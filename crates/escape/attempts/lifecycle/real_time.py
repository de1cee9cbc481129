try: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except OSError as error:
    if CONTROL and error.errno == errno.EPERM: na("this host gives nobody real time (no budget in this cgroup)")
    held("SCHED_FIFO: " + refused(error))
escaped("a real-time process")
