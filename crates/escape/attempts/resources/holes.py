import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
if CONTROL and libc.mount(b"none", b"/tmp", b"tmpfs", 0, b"size=1m") != 0: na("a control cannot have a file system of its own here")
with open("/tmp/holes", "wb") as file:
    try: file.truncate(1 << 40)
    except OSError as error: held("truncate: " + refused(error))
escaped("a file of 1 TiB")
