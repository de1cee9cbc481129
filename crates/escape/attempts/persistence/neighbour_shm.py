key = int(NONCE[3:10], 16) | 1
if os.environ["ESCAPE_PHASE"] == "leave":
    mine, error = syscall(29, key, 4096, 0o1666)
    print("READY", flush=True); time.sleep(8)
    syscall(31, mine, 0, 0); os._exit(0)
result, error = syscall(29, key, 0, 0)
if error: held("shmget: " + error)
syscall(31, result, 0, 0)
escaped("the neighbour's memory is there")
