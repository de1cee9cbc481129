try:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM if not CONTROL else socket.SOCK_RAW, 1)
    client.sendto(struct.pack(">BBHHH", 8, 0, 0, 1, 1) + NONCE.encode(), ("198.51.100.1", 0))
except OSError as error: held("ping: " + refused(error))
escaped("a ping left")
