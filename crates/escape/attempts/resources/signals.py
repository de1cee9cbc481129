import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
info = ctypes.create_string_buffer(128)
struct.pack_into("iii", info, 0, signal.SIGRTMIN, 0, -1)
MOST = 20000
if CONTROL:
    # The queue is the caller's user's: a control has room for many times as much, or is not to be had.
    with open("/proc/self/status") as file: used, most = next(line for line in file if line.startswith("SigQ")).split()[1].split("/")
    if int(most) - int(used) < 4 * MOST: MOST = 2000
    if int(most) - int(used) < 4 * MOST: na("the caller's queue of signals is too short for a control")
for count in range(MOST):
    result, error = syscall(129, os.getpid(), int(signal.SIGRTMIN), ctypes.c_char_p(ctypes.addressof(info)))
    if error: held("%d queued signals, then %s" % (count, error))
escaped("%d queued signals" % MOST)
