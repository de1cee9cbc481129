name = "\0n" + NONCE
if os.environ["ESCAPE_PHASE"] == "leave":
    server = socket.socket(socket.AF_UNIX); server.bind(name); server.listen(1)
    print("READY", flush=True); time.sleep(8); os._exit(0)
client = socket.socket(socket.AF_UNIX)
try: client.connect(name)
except OSError as error: held("connect: " + refused(error))
escaped("connected to the neighbour")
