# Two processes that count for a second and a half, piece by piece. A piece that took far longer than the middle one was interrupted, and
# counts as a middle one; so many of them took so much processor time, whatever a kernel notes about it. That holds where most
# pieces are not interrupted: an emulated processor, which is slow and has a tenth of one, needs small ones. A clock that is coarse on
# purpose (20 us in WebAssembly) needs larger ones: a piece shorter than its step is told as nothing or as a whole step.
def piece(size):
    at = time.perf_counter()
    for _ in range(size): pass
    return time.perf_counter() - at
def middle(pieces): return sorted(pieces)[len(pieces) // 2]
def count():
    pieces = []
    while time.monotonic() - began < 1.5: pieces.append(piece(size))
    usual = middle(pieces)
    return sum(one if one < 4 * usual else usual for one in pieces)
size, step = 500, time.get_clock_info("perf_counter").resolution
while size < 500000 and middle([piece(size) for _ in range(9)]) < 25 * step: size *= 2
began = time.monotonic()
if hasattr(os, "fork"):
    reader, writer = os.pipe()
    for _ in range(2):
        if os.fork() == 0: os.write(writer, struct.pack("d", count())); os._exit(0)
    used = sum(struct.unpack("d", os.read(reader, 8))[0] for _ in range(2))
    for _ in range(2): os.wait()
else: used = count()
share = used / (time.monotonic() - began)
if CONTROL and share <= 0.15: na("this host is too busy to show it: %.2f processors" % share)
# A tenth is allowed. A busy host gives less; half as much again is more than allowed, on any host.
escaped("%.2f processors where 0.10 are allowed" % share) if share > 0.15 else held("%.2f processors" % share)
