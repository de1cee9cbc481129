# A host that no policy names, through the proxy of the box's own gateway.
import threading
def yes(server):
    line, _ = server.accept()
    line.recv(512); line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
if CONTROL: threading.Thread(target=yes, args=(listen(socket.SOCK_STREAM, 3128),), daemon=True).start()
line = socket.socket()
line.settimeout(10)
try: line.connect(("198.18.0.1", 3128))
except OSError as error: held("proxy: %s" % (refused(error) if error.errno else "no answer"))
# Whoever refuses says so at once (403). A gateway that says anything else, or nothing, may be on its way to that host.
try:
    line.sendall(b"CONNECT %s.example:443 HTTP/1.1\r\nhost: %s.example:443\r\n\r\n" % (NONCE.encode(), NONCE.encode()))
    answer = line.recv(512).split(b"\r\n")[0].decode("latin-1")
except OSError as error: escaped("the proxy took a host that no policy names, and then: %s" % (refused(error) if error.errno else "no answer"))
held("the proxy says: " + answer) if answer.split(" ")[1:2] == ["403"] else escaped("the proxy says: %s" % (answer or "nothing"))
