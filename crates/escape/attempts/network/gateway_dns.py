# A question for <nonce>.example to the box's own resolver: whoever asks the name's own servers on its behalf carries it out.
servers = [line.split()[1] for line in lines("/etc/resolv.conf") if line.startswith("nameserver") and len(line.split()) > 1]
if CONTROL: servers, server = ["198.18.0.1"], listen(socket.SOCK_DGRAM, 53)
if not servers: held("the box has no resolver")
label = NONCE.encode()
question = struct.pack(">HHHHHH", 1, 0x100, 1, 0, 0, 0) + bytes([len(label)]) + label + b"\x07example\0" + struct.pack(">HH", 1, 1)
client = socket.socket(socket.AF_INET6 if ":" in servers[0] else socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(5)
try: client.sendto(question, (servers[0], 53))
except OSError as error: held("resolver %s: %s" % (servers[0], refused(error)))
if CONTROL:
    server.settimeout(2)
    if label in server.recv(512): escaped("the name arrived at the resolver, which would ask on")
try: answer = client.recv(512)
except OSError as error:
    # It may have asked on and wait itself: no word of ours, so that the cell counts as one that could not run.
    if not error.errno: raise SystemExit("resolver %s: no answer, which tells nothing" % servers[0])
    held("resolver %s: %s" % (servers[0], refused(error)))
kind, count = answer[3] & 15, struct.unpack(">H", answer[6:8])[0]
if count: escaped("the name was answered with %d records" % count)
# The gateway speaks for itself (authoritative); whoever has asked on does not.
if kind in (3, 5) and answer[2] & 4: held("resolver %s: refused with code %d" % (servers[0], kind))
escaped("the resolver answered with code %d, and not for itself" % kind)
