# PTRACE_SEIZE. The control traces a child of its own, which every kernel lets it.
target = 1
if CONTROL:
    target = os.fork()
    if target == 0: time.sleep(2); os._exit(0)
result, error = syscall(101, 0x4206, target, 0, 0)
held("PTRACE_SEIZE %d: %s" % (target, error)) if error else escaped("process %d is traced" % target)
