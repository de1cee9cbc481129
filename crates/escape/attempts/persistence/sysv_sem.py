key = int(NONCE[3:10], 16) | 1
leave_ipc("semget", lambda: syscall(64, key, 1, 0o1666))
result, error = syscall(64, key, 0, 0)
if error: held("semget: " + error)
syscall(66, result, 0, 0)
escaped("the semaphore is there")
