# pidfd_getfd: the control channel is descriptor 3 of pid 1. The control takes one from a child of its own, which every kernel lets it.
target = 1
if CONTROL:
    target = os.fork()
    if target == 0: time.sleep(2); os._exit(0)
handle, error = syscall(434, target, 0)
if error: held("pidfd_open %d: %s" % (target, error))
answers = {}
for number in range(16):
    taken, error = syscall(438, handle, number, 0)
    if not error: escaped("descriptor %d of process %d was taken" % (number, target))
    answers[error] = answers.get(error, 0) + 1
if CONTROL and "ENOSYS" in answers: na("a filter of system calls around this caller may be what answers: ENOSYS") if filtered() else nothing_there("this kernel has no pidfd_getfd")
held("pidfd_getfd on process %d: %s" % (target, answers))
