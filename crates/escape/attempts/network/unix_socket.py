client = socket.socket(socket.AF_UNIX)
try: client.connect(host("socket")); client.send(NONCE.encode())
except OSError as error: held("Unix socket: " + refused(error))
