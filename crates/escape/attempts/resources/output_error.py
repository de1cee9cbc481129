for _ in range(64): sys.stderr.write("x" * 65535 + "\n")
escaped("4 MiB where 1 is allowed")
