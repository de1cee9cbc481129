path = "/proc/net/unix"
try: text = open(path).read()
except OSError as error: held(path + ": " + refused(error))
if NONCE in text: escaped("the host's socket is in the list")
held("none of the host")
