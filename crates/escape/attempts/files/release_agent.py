import glob
places = glob.glob(HOST_ROOT + "/sys/fs/cgroup/*/release_agent") + glob.glob(HOST_ROOT + "/sys/fs/cgroup/release_agent")
places += glob.glob(HOST_ROOT + "/sys/fs/cgroup/cgroup.procs") + glob.glob(HOST_ROOT + "/sys/fs/cgroup/*/cgroup.procs")
if not places: na("this host has no cgroups in sight") if CONTROL else (na("no cgroup is in sight") if HOST_ROOT else held("no cgroup is in sight"))
for place in places:
    try: os.close(os.open(place, os.O_WRONLY))
    except OSError as error: last = refused(error); continue
    escaped("%s can be opened for writing" % place)
held("%d places, none can be written: %s" % (len(places), last))
