# The world's side of `https`: a resolver that knows one address, and a server over TLS. Told the files of its certificate and key.
import http.server, socket, ssl, sys, threading

ADDRESS = sys.argv[1]


def resolve():
    ours = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    ours.bind((ADDRESS, 53))
    while True:
        question, asker = ours.recvfrom(512)
        end = question.index(0, 12) + 5
        plain = question[end - 4 : end - 2] == b"\0\1"
        answer = b"\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4" + socket.inet_aton(ADDRESS) if plain else b""
        head = question[:2] + b"\x81\x80\0\1" + (b"\0\1" if plain else b"\0\0") + b"\0\0\0\0"
        ours.sendto(head + question[12:end] + answer, asker)


class Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "16")
        self.end_headers()
        self.wfile.write(b"sixteen bytes it")

    def log_message(self, *words):
        pass


threading.Thread(target=resolve, daemon=True).start()
server = http.server.ThreadingHTTPServer((ADDRESS, 443), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[2], sys.argv[3])
server.socket = context.wrap_socket(server.socket, server_side=True)
print("ready", flush=True)
server.serve_forever()
