target = PID_1
done = []
for name, act in (("setpriority", lambda: os.setpriority(os.PRIO_PROCESS, target, 19)), ("sched_setscheduler", lambda: os.sched_setscheduler(target, os.SCHED_IDLE, os.sched_param(0)))):
    try: act(); done.append(name)
    except OSError as error: last = refused(error)
escaped("%s on process %d" % (", ".join(done), target)) if done else held("on process %d: %s" % (target, last))
