if os.environ["ESCAPE_PHASE"] == "leave":
    if os.fork() == 0: leave_process(STAY)
    stay()
import glob
until = time.time() + 1
while time.time() < until:
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try: line = open(path, "rb").read()
        except OSError: continue
        if NONCE.encode() in line: escaped("the neighbour's process is there: " + path)
    time.sleep(0.05)
held("no such process")
