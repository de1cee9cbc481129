key = int(NONCE[3:10], 16) | 1
leave_ipc("shmget", lambda: syscall(29, key, 4096, 0o1666), stay=STAY)
result, error = syscall(29, key, 0, 0)
if error: held("shmget: " + error)
syscall(31, result, 0, 0)
escaped("the neighbour's memory is there")
