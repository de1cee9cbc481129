# A disk of the host, as the host names it. Whoever may open none outside of boxes (a user, a root that is kept from devices) shows
# with a stand-in at its path that reading it would be seen.
import glob
names = ("[sv]da", "xvda", "nvme0n1")
found = sorted(path for name in names for path in glob.glob(HOST_ROOT + "/dev/" + name))
path = found[0][len(HOST_ROOT):] if found else "/dev/sda"
if CONTROL:
    try:
        if not driven(path): raise OSError(errno.ENXIO, "no driver")
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError: stand_in(path, "stand-in of a disk\n")
may_open(path)
