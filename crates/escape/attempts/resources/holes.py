import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with open("/tmp/holes", "wb") as file:
    try: file.truncate(1 << 40)
    except OSError as error: held("truncate: " + refused(error))
escaped("a file of 1 TiB")
