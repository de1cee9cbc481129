# Run by Python with HOST, SECONDS, LINES and LINGER set before it: requests in a second over one connection, and over one of its own
# each. With no seconds at all it only opens as many connections as LINES says, and asks once on each.
import http.client, json, time


def ask(line):
    line.request("GET", "/")
    with line.getresponse() as answer:
        assert answer.status == 200 and len(answer.read()) == 16


def kept():
    line, begun, count = http.client.HTTPSConnection(HOST, timeout=20), time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        ask(line)
        count += 1
    return count / (time.perf_counter() - begun)


def fresh():
    begun, count = time.perf_counter(), 0
    while time.perf_counter() - begun < SECONDS:
        line = http.client.HTTPSConnection(HOST, timeout=20)
        ask(line)
        line.close()
        count += 1
    return count / (time.perf_counter() - begun)


found = {"kept": kept(), "fresh": fresh()} if SECONDS else {"kept": 0, "fresh": 0}
lines = [http.client.HTTPSConnection(HOST, timeout=60) for _ in range(LINES)]
for line in lines:
    ask(line)
print(json.dumps(found), flush=True)
# Whoever wants to look at the gateway can do so now.
time.sleep(LINGER)
