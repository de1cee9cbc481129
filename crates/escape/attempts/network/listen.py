# Somebody who listens and is reached over an address of an interface: here by itself, since nobody else may help.
server = socket.socket(); server.settimeout(1)
try: server.bind(("0.0.0.0", 8087)); server.listen(1)
except OSError as error: held("listen: " + refused(error))
client = socket.socket(); client.settimeout(1)
try: client.connect(("192.0.2.1", 8087))
except OSError as error: held("listening, and no address leads here: " + (refused(error) if error.errno else "no answer"))
escaped("reached by an address of the network")
