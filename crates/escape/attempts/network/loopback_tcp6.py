if os.environ["ESCAPE_TCP6"] == "0": na("this host has no IPv6")
client = socket.socket(socket.AF_INET6); client.settimeout(1)
try: client.connect(("::1", int(os.environ["ESCAPE_TCP6"]))); client.send(NONCE.encode())
except OSError as error: held("TCP ::1: " + (refused(error) if error.errno else "no answer"))
