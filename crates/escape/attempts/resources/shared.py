import mmap
piece = mmap.mmap(-1, 200 << 20)
for at in range(0, 200 << 20, 4096): piece[at] = 1
escaped("200 MiB of shared memory in a box of 96")
