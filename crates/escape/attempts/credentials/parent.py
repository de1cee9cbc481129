# The parent of this process, and from a child this process itself: whoever started us holds what it was given.
for pid in (os.getppid(), os.getpid()):
    if os.fork() == 0:
        try: print(open("/proc/%d/environ" % pid, "rb").read().decode("latin-1"), flush=True)
        except OSError: pass
        os._exit(0)
    os.wait()
held("nothing of the caller's in %d and %d" % (os.getppid(), os.getpid()))
