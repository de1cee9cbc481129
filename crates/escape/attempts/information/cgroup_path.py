paths = {line.split(":", 2)[2] for line in open("/proc/self/cgroup").read().splitlines()}
inside = [path for path in paths if path != "/"]
if inside: escaped("paths of the host's cgroups: %s" % inside)
if CONTROL: na("this caller is at the root of every cgroup: there is no path to learn")
held("every path is /")
