# Two processes that count for a second and a half: how much processor time they were given against the clock.
began = time.monotonic()
for _ in range(2):
    if os.fork() == 0:
        while time.monotonic() - began < 1.5: pass
        os._exit(0)
for _ in range(2): os.wait()
used = sum(os.times()[2:4]); share = used / (time.monotonic() - began)
if CONTROL and share <= 0.15: na("this host is too busy to show it: %.2f processors" % share)
# A tenth is allowed. A busy host gives less; half as much again is more than allowed, on any host.
escaped("%.2f processors where 0.10 are allowed" % share) if share > 0.15 else held("%.2f processors" % share)
