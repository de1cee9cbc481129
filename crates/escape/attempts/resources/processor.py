# Two processes that count for a second and a half, piece by piece. The middle one of the pieces took what a piece takes on a
# processor of its own; so many of them took so much processor time, whatever a kernel notes about it. That holds where most
# pieces are not interrupted: an emulated processor, which is slow and has a tenth of one, needs small ones.
def count():
    pieces = []
    while time.monotonic() - began < 1.5:
        at = time.perf_counter()
        for _ in range(500): pass
        pieces.append(time.perf_counter() - at)
    return sorted(pieces)[len(pieces) // 2] * len(pieces)
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
