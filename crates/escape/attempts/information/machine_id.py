path = shown("/etc/machine-id")
if CONTROL and not (os.path.exists(path) and open(path).read().strip()): nothing_there("this host has no machine id")
take(path)
held("one that is not the host's")
