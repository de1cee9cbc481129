# Roots and working directories of every process in sight, and from there up and down again. As a control: of its own alone, since the
# directory of another may lie on a file system that does not answer.
import glob
for link in ["/proc/self/cwd", "/proc/self/root"] if CONTROL else glob.glob("/proc/[0-9]*/cwd") + glob.glob("/proc/[0-9]*/root"):
    try: print(open(link + "/" + "../" * 40 + host("secret").lstrip("/")).read())
    except OSError: pass
held("nothing through any process")
