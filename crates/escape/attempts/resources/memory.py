try: piece = bytearray(256 << 20)
except MemoryError: held("256 MiB were refused")
for at in range(0, len(piece), 4096): piece[at] = 1
escaped("256 MiB in a box of 96")
