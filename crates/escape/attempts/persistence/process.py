if os.environ["ESCAPE_PHASE"] == "leave": leave_process(4) if os.fork() == 0 else held("left")
import glob
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try: line = open(path, "rb").read()
    except OSError: continue
    if NONCE.encode() in line: escaped("the process is there: " + path)
held("no such process")
