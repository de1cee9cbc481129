if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.chdir("/"); os.umask(0)
        for number in range(256):
            try: os.close(number)
            except OSError: pass
        for _ in range(3): os.open("/dev/null", os.O_RDWR)
        leave_process()
    os._exit(0)
os.wait()
left("a daemon")
