path = host("canary") if CONTROL else "/tmp/file"
open(path, "a").close()
value = struct.pack("<IIIII", 0x2000001, 0x400, 0, 0, 0)
result, error = syscall(188, path.encode(), b"security.capability", value, 20, 0)
if CONTROL and error == "EOPNOTSUPP": na("this file system has no capabilities of files")
held("setxattr: " + error) if error else escaped("a file has a capability")
