# Without the filter the socket can be had: what counts then is whether anybody listens to it.
if LIFTED != "seccomp": socket_of(16, 3, 9)
line = socket.socket(16, 3, 9)
line.settimeout(2)
line.send(struct.pack("IHHII", 16, 1000, 5, 1, 0))
answer = line.recv(4096)
kind, code = struct.unpack("H", answer[4:6])[0], struct.unpack("i", answer[16:20])[0]
held("AUDIT_GET: %s" % errno.errorcode.get(-code, code)) if kind == 2 and code else escaped("the audit system answered: %d" % kind)
