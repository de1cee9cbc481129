path = os.environ.get("SSH_AUTH_SOCK") or host("socket")
client = socket.socket(socket.AF_UNIX)
try: client.connect(path); client.send(NONCE.encode())
except OSError as error: held("agent's socket: " + refused(error))
