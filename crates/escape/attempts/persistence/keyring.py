# The user's keyring (-4). The key of the control goes with its own time limit of five seconds.
if os.environ["ESCAPE_PHASE"] == "leave":
    result, error = syscall(248, b"user", NONCE.encode(), b"x", 1, -4)
    if not error: syscall(250, 15, result, 5)
    held("add_key: %s" % (error or "left"))
syscall(250, 8, -4, -2)
result, error = syscall(250, 10, -4, b"user", NONCE.encode(), 0)
if error: held("keyctl: " + error)
escaped("the key is there")
