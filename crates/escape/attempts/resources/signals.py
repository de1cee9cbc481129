import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMIN])
info = ctypes.create_string_buffer(128)
struct.pack_into("iii", info, 0, signal.SIGRTMIN, 0, -1)
for count in range(20000):
    result, error = syscall(129, os.getpid(), int(signal.SIGRTMIN), ctypes.c_char_p(ctypes.addressof(info)))
    if error: held("%d queued signals, then %s" % (count, error))
escaped("20000 queued signals")
