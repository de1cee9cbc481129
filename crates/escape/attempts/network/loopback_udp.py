client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: client.sendto(NONCE.encode(), ("127.0.0.1", int(os.environ["ESCAPE_UDP"])))
except OSError as error: held("UDP 127.0.0.1: " + refused(error))
held("sent: only the host's own listener can tell")
