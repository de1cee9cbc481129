import glob
places = [p for name in ("cgroup.procs", "cgroup.freeze", "memory.max", "memory.limit_in_bytes") for p in glob.glob(HOST_ROOT + "/sys/fs/cgroup/" + name) + glob.glob(HOST_ROOT + "/sys/fs/cgroup/*/" + name)]
if not places: na("this host shows no cgroups") if CONTROL else (na("no cgroup is in sight") if HOST_ROOT else held("no cgroup is in sight"))
for place in places:
    try: os.close(os.open(place, os.O_WRONLY)); escaped("%s can be opened for writing" % place)
    except OSError as error: last = refused(error)
held(last)
