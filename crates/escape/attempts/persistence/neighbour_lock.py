import fcntl
# As a control: a file of the stage. In a box one that every box of its image has.
shared = host("canary") if CONTROL else "/usr/bin/env" if os.path.exists("/usr/bin/env") else sys.executable
file = open(shared, "rb")
if os.environ["ESCAPE_PHASE"] == "leave":
    try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError: pass
    stay()
try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError as error: escaped("the neighbour's lock is seen: " + refused(error))
held("no lock is seen")
