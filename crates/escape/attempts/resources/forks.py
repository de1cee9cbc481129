# At most 100 children, each of which waits for the end of a pipe.
reader, writer = os.pipe()
count = 0
for _ in range(100):
    try: child = os.fork()
    except OSError as error: held("%d children, then %s" % (count, refused(error)))
    if child == 0:
        os.close(writer); os.read(reader, 1); os._exit(0)
    count += 1
escaped("100 children where 32 processes are allowed")
