# What counts is the limit afterwards: for core files the filter says "done" and does nothing.
import resource
raised = []
for name in ("NPROC", "NOFILE", "MEMLOCK", "CORE", "FSIZE", "RTPRIO", "NICE", "SIGPENDING", "MSGQUEUE"):
    number = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(number)[1]
    if hard == resource.RLIM_INFINITY: continue
    try: resource.setrlimit(number, (hard + 1, hard + 1))
    except (ValueError, OSError): pass
    if resource.getrlimit(number)[1] > hard: raised.append(name)
if CONTROL and not raised: na("root of this host may not raise limits")
escaped("raised: %s" % raised) if raised else held("no limit can be raised")
