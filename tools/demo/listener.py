"""A service on loopback that every program of the host can reach: prints its port, then a line for each visitor."""

import socket

server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
while True:
    visitor, _ = server.accept()
    print("visited", flush=True)
    with visitor:
        visitor.sendall(b"hello from the host\n")
