path = "/proc/net/tcp"
try: lines = open(path).read().splitlines()
except OSError as error: held(path + ": " + refused(error))
port = ":%04X" % int(os.environ["ESCAPE_TCP"])
if any(port in line for line in lines): escaped("the host's listener is in the list")
held("%d connections, none of the host" % (len(lines) - 1))
