# What counts is the limit afterwards: for core files the filter says "done" and does nothing.
import resource
def limits(): return {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name)) for name in NAMES}
def higher(now, before): return before != resource.RLIM_INFINITY and (now == resource.RLIM_INFINITY or now > before)
NAMES = ("NPROC", "NOFILE", "MEMLOCK", "CORE", "FSIZE", "RTPRIO", "NICE", "SIGPENDING", "MSGQUEUE")
if CONTROL and not able(24):
    # Nobody raises a hard limit without CAP_SYS_RESOURCE: this control has one that is not hard, which is what a box has none of.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard) // 2, hard))
before = limits()
for name, (soft, hard) in before.items():
    for most in (hard, hard + 1):
        # One more than no limit would be the lowest of all.
        if most == 0 and hard != 0: continue
        try: resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
        except (ValueError, OSError): pass
after = limits()
raised = [name for name in NAMES if any(higher(now, old) for now, old in zip(after[name], before[name]))]
escaped("raised: %s" % raised) if raised else held("no limit can be raised")
