# Sixty grandchildren without parent, in six rounds.
for _ in range(6):
    for _ in range(10):
        if os.fork() == 0:
            if os.fork() == 0: os._exit(0)
            os._exit(0)
    for _ in range(10): os.wait()
print("HELD left sixty dead and exits 14", flush=True)
os._exit(14)
