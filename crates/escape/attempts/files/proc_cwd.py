# Roots and working directories of every process in sight, and from there up and down again.
import glob
for link in glob.glob("/proc/[0-9]*/cwd") + glob.glob("/proc/[0-9]*/root"):
    try: print(open(link + "/" + "../" * 40 + host("secret").lstrip("/")).read())
    except OSError: pass
held("nothing through any process")
