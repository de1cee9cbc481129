client = socket.socket(socket.AF_UNIX)
try:
    client.connect(WORKSPACE + "/socket")
    client.send(NONCE.encode())
except OSError as error: held("connect: " + refused(error))
