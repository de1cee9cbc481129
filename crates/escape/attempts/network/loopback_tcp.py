client = socket.socket(); client.settimeout(1)
try: client.connect(("127.0.0.1", int(os.environ["ESCAPE_TCP"]))); client.send(NONCE.encode())
except OSError as error: held("TCP 127.0.0.1: " + (refused(error) if error.errno else "no answer"))
