# Run by Python with HOST and SECONDS set before it: requests in a second over one connection, and over one of its own each.
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


print(json.dumps({"kept": kept(), "fresh": fresh()}), flush=True)
