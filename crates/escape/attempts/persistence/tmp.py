path = (host("") if CONTROL else "/tmp/") + "left-" + NONCE
if os.environ["ESCAPE_PHASE"] == "leave": open(path, "w").close(); held("left")
escaped("the file is there") if os.path.exists(path) else held("nothing is there")
