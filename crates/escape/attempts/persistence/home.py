path = (host("home") if CONTROL else os.path.expanduser("~")) + "/.bashrc"
if os.environ["ESCAPE_PHASE"] == "leave":
    try: open(path, "w").write(NONCE)
    except OSError as error: held(refused(error))
    held("left")
try: text = open(path).read()
except OSError as error: held(refused(error))
escaped("the start file is there") if NONCE in text else held("the start file is another one")
