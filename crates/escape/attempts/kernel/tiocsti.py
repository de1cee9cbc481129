import fcntl, termios
ours, theirs = os.openpty()
if os.fork() == 0:
    os.setsid()
    fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
    try: fcntl.ioctl(theirs, 0x5412, b"x")
    except OSError as error:
        if CONTROL and error.errno in (errno.EIO, errno.EPERM): na("this kernel forbids TIOCSTI to this caller (legacy_tiocsti)")
        held("TIOCSTI: " + refused(error))
    escaped("a byte was typed into a terminal")
os.wait()
