import signal
if os.fork() == 0:
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    leave_process()
left("a process that ignores signals")
