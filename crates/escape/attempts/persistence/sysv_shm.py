key = int(NONCE[3:10], 16) | 1
if os.environ["ESCAPE_PHASE"] == "leave":
    result, error = syscall(29, key, 4096, 0o1666)
    held("shmget: %s" % (error or "left"))
result, error = syscall(29, key, 0, 0)
if error: held("shmget: " + error)
syscall(31, result, 0, 0)
escaped("the memory is there")
