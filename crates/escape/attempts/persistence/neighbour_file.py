path = (host("") if CONTROL else "/tmp/") + "beside-" + NONCE
if os.environ["ESCAPE_PHASE"] == "leave":
    open(path, "w").close(); stay()
escaped("the neighbour's file is there") if os.path.exists(path) else held("nothing is there")
