client = socket.socket(socket.AF_UNIX)
try: client.connect("\0" + NONCE); client.send(NONCE.encode())
except OSError as error: held("abstract socket: " + refused(error))
