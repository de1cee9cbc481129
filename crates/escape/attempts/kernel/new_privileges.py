# Whether a setuid program would gain anything here; the same bit is what every setuid bug needs.
import glob
gains = libc.prctl(39, 0, 0, 0, 0) == 0
found = [path for path in glob.glob("/usr/bin/*") if os.path.exists(path) and os.stat(path).st_mode & 0o4000]
if gains: escaped("programs may gain privileges; setuid programs in sight: %d" % len(found))
held("no_new_privs is set; setuid programs in sight: %d" % len(found))
