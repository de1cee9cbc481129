fd = os.memfd_create("x")
for _ in range(200):
    try: os.write(fd, b"x" * (1 << 20))
    except OSError as error: held("memfd: " + refused(error))
escaped("200 MiB in a file without a name in a box of 96")
