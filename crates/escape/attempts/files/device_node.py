# A second /dev/null: harmless where it works, and the same call makes the host's disk.
path = (host("") if CONTROL else "/tmp/") + "node"
result, error = syscall(133, path.encode(), 0o20666, os.makedev(1, 3))
held("mknod: " + error) if error else escaped("a device node was made")
