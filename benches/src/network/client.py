# Run by Python with ADDRESS (host, port), SECONDS and LINGER set before it: what a connection through some way out is worth.
# Prints one line of JSON. With no seconds at all it only opens the idle connections.
import json, socket, sys, time

PIECE = bytearray(1 << 20)


def reach(kind):
    one = socket.create_connection(ADDRESS, timeout=20)
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    one.sendall(kind)
    return one


def up():
    """Bytes a second to the server, which counts them."""
    with reach(b"u") as one:
        begun, sent = time.perf_counter(), 0
        while time.perf_counter() - begun < SECONDS:
            one.sendall(PIECE)
            sent += len(PIECE)
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b"u"
        return sent / (time.perf_counter() - begun)


def down():
    with reach(b"d") as one:
        begun, got = time.perf_counter(), 0
        while time.perf_counter() - begun < SECONDS:
            more = one.recv_into(PIECE)
            assert more
            got += more
        return got / (time.perf_counter() - begun)


def round_trip():
    """The middle one, in microseconds."""
    with reach(b"e") as one:
        took = []
        for _ in range(2000):
            begun = time.perf_counter()
            one.sendall(b"x")
            assert one.recv(1) == b"x"
            took.append(time.perf_counter() - begun)
        return sorted(took)[len(took) // 2] * 1e6


def connections():
    """New ones in a second, one after another: opened, asked, answered, ended."""
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        with reach(b"c") as one:
            assert one.recv(1) == b"c"
        count += 1
    return count / (time.perf_counter() - begun)


measures = [up, down, round_trip, connections] if SECONDS else []
found = {one.__name__: one() for one in measures}
idle = [reach(b"e") for _ in range(500)]
if SECONDS:
    found["connections_beside_idle"] = connections()
print(json.dumps(found), flush=True)
# Whoever wants to look at the way out can do so now.
time.sleep(LINGER)
