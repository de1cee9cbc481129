import fcntl
ours, theirs = os.openpty()
try: fcntl.ioctl(theirs, 0x5423, struct.pack("i", 0))
except OSError as error: held("TIOCSETD: " + refused(error))
escaped("a line discipline was set")
