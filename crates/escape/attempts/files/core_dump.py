import resource, signal
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
