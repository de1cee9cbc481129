import fcntl
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try: fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 0x49))
except OSError as error: held("SIOCSIFFLAGS: " + refused(error))
escaped("an interface was brought up")
