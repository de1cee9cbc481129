"""The SDK with nothing but a domain and a key: names of sandboxes lead to the daemon's door with TLS, whose authority is trusted."""

import os
import socket
import socketserver
import ssl
import threading
import urllib.error
import urllib.request

import pytest

DOMAIN = os.environ["E2B_DOMAIN"]


class Names(socketserver.StreamRequestHandler):
    """Stands for the operator's wildcard DNS: leads `CONNECT NAME:PORT` to this host, whichever sandbox the name is of."""

    def handle(self):
        host, port = self.rfile.readline().split()[1].decode().rsplit(":", 1)
        while self.rfile.readline().strip():
            pass
        assert host.endswith(".sbx.test"), host
        with socket.create_connection(("127.0.0.1", int(port))) as there:
            self.wfile.write(b"HTTP/1.1 200 here\r\n\r\n")
            back = threading.Thread(target=carry, args=(there, self.connection), daemon=True)
            back.start()
            carry(self.connection, there)
            back.join()


def carry(one, other):
    try:
        while piece := one.recv(65536):
            other.sendall(piece)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        # Broken off, as streams of a killed sandbox are: on both sides.
        for line in one, other:
            try:
                line.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


names = Server(("127.0.0.1", 0), Names)
threading.Thread(target=names.serve_forever, daemon=True).start()
os.environ["HTTPS_PROXY"] = f"http://127.0.0.1:{names.server_address[1]}"


def ask(host, path="/", headers=None):
    """A request by somebody who trusts the authority and nothing else."""
    request = urllib.request.Request(f"https://{host}{path}", headers=headers or {})
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    try:
        with urllib.request.urlopen(request, context=context, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def served():
    """Makes a sandbox with a server on port 8000, which answers with the file `page`."""
    made = []

    from e2b import Sandbox

    def serve(**more):
        box = Sandbox.create(timeout=600, **more)
        made.append(box)
        box.files.write("page", "from inside")
        box.commands.run("python3 -m http.server 8000 --bind 127.0.0.1", background=True)
        waits = "until (exec 3<>/dev/tcp/127.0.0.1/8000) 2>/dev/null; do sleep 0.05; done"
        box.commands.run(waits)
        return box

    yield serve
    for box in made:
        box.kill()
