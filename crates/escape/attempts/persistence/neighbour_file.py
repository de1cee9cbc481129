path = (host("") if CONTROL else "/tmp/") + "beside-" + NONCE
if os.environ["ESCAPE_PHASE"] == "leave":
    open(path, "w").close(); print("READY", flush=True); time.sleep(8); os._exit(0)
escaped("the neighbour's file is there") if os.path.exists(path) else held("nothing is there")
