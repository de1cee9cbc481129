written = 0
try:
    with open("/tmp/large", "wb") as file:
        for _ in range(64): written += file.write(b"x" * (1 << 20))
except OSError as error: held("%d MiB, then %s" % (written >> 20, refused(error)))
escaped("64 MiB where 32 are allowed")
