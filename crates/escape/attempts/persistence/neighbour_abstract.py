name = "\0n" + NONCE
if os.environ["ESCAPE_PHASE"] == "leave":
    server = socket.socket(socket.AF_UNIX); server.bind(name); server.listen(1)
    stay()
client = socket.socket(socket.AF_UNIX)
try: client.connect(name)
except OSError as error: held("connect: " + refused(error))
escaped("connected to the neighbour")
