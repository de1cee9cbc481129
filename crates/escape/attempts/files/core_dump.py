import resource, signal
if CONTROL:
    # Where the host has a handler of crashes, or a place for them, a control would start or fill it.
    pattern = setting("kernel/core_pattern")
    if not pattern or pattern[0] in "|@" or "/" in pattern: na("this host hands cores to somebody or keeps them (%r): a control makes none" % pattern)
    if resource.getrlimit(resource.RLIMIT_CORE)[1] < 4096: na("this caller may not have cores")
    # In namespaces of its own, on a file system of 1 MiB that goes with them.
    stand_in("/tmp/core")
    libc.prctl(4, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
else:
    try: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except (ValueError, OSError): pass
os.chdir("/tmp")
child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSEGV)
    os._exit(1)
status = os.waitpid(child, 0)[1]
if os.WCOREDUMP(status): escaped("the kernel says that a core was dumped")
left = [name for name in os.listdir("/tmp") if name.startswith("core")]
if left: escaped("a core file: %s" % left)
held("ended by signal %d without a core" % os.WTERMSIG(status))
