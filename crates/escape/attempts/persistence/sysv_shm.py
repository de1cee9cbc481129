key = int(NONCE[3:10], 16) | 1
leave_ipc("shmget", lambda: syscall(29, key, 4096, 0o1666))
result, error = syscall(29, key, 0, 0)
if error: held("shmget: " + error)
syscall(31, result, 0, 0)
escaped("the memory is there")
