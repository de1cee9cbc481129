# In a control the directory is the stage's: /dev/shm of the host is left alone.
path = (host("") if CONTROL else "/dev/shm/") + "left-" + NONCE
if os.environ["ESCAPE_PHASE"] == "leave":
    try: open(path, "w").close()
    except OSError as error: held(refused(error))
    held("left")
escaped("the file is there") if os.path.exists(path) else held("nothing is there")
