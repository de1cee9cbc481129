"""E2B's published SDK for Python on loopback, as a user calls it; and the same calls without it, in turns, so that what the SDK itself costs
can be told. Prints one object: milliseconds by name, and megabytes a second. E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY say where."""

import asyncio
import http.client
import json
import os
import struct
import sys
import time
from urllib.parse import urlsplit

from e2b import AsyncSandbox, Sandbox
from e2b_code_interpreter import Sandbox as Interpreter

samples, crowd = int(sys.argv[1]), int(sys.argv[2])
at = urlsplit(os.environ["E2B_API_URL"])
took = {}


def timed(name, call):
    begun = time.perf_counter()
    answer = call()
    took.setdefault(name, []).append((time.perf_counter() - begun) * 1e3)
    return answer


class Raw:
    """One connection, no SDK."""

    def __init__(self):
        self.line = http.client.HTTPConnection(at.hostname, at.port)

    def ask(self, method, path, body, headers):
        self.line.request(method, path, body, {"content-type": "application/json", **headers})
        answer = self.line.getresponse()
        read = answer.read()
        assert answer.status < 300, (answer.status, read[:500])
        return read

    def control(self, method, path, body=None):
        read = self.ask(method, path, body and json.dumps(body), {"x-api-key": os.environ["E2B_API_KEY"]})
        return json.loads(read) if read else None

    def inside(self, made, port, path, body, **headers):
        names = {"e2b-sandbox-id": made["sandboxID"], "e2b-sandbox-port": str(port), "x-access-token": made["envdAccessToken"]}
        return self.ask("POST", path, body, {**names, **headers})


def start(command):
    message = json.dumps({"process": {"cmd": "/bin/bash", "args": ["-l", "-c", command]}, "stdin": False}).encode()
    return struct.pack(">BI", 0, len(message)) + message


raw = Raw()
stream = {"content-type": "application/connect+json", "connect-protocol-version": "1"}
for _ in range(samples):
    # The pool is given the time to be there: what is measured is a warm one.
    time.sleep(0.15)
    box = timed("create", lambda: Sandbox.create(timeout=600))
    time.sleep(0.15)
    made = timed("create, raw", lambda: raw.control("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 600}))
    for _ in range(5):
        timed("command", lambda: box.commands.run("true"))
        timed("command, raw", lambda: raw.inside(made, 49983, "/process.Process/Start", start("true"), **stream))
    box.kill()
    raw.control("DELETE", f"/sandboxes/{made['sandboxID']}")

for _ in range(max(samples // 4, 3)):
    # A member with a kernel takes about a second to get ready.
    time.sleep(3)
    box = Interpreter.create(timeout=600)
    assert timed("first code", lambda: box.run_code("1+1")).text == "2"
    made = {"sandboxID": box.sandbox_id, "envdAccessToken": box._envd_access_token}
    ask = json.dumps({"code": "1+1"})
    for _ in range(20):
        assert timed("code", lambda: box.run_code("1+1")).text == "2"
        timed("code, raw", lambda: raw.inside(made, 49999, "/execute", ask))
    box.kill()

box = Sandbox.create(timeout=600)
data, rates = os.urandom(100_000_000), []
for _ in range(3):
    begun = time.perf_counter()
    box.files.write("large", data, use_octet_stream=True)
    assert len(box.files.read("large", format="bytes")) == len(data)
    rates.append(2 * len(data) / 1e6 / (time.perf_counter() - begun))
box.kill()


async def many():
    async def one():
        begun = time.perf_counter()
        made = await AsyncSandbox.create(timeout=600)
        took.setdefault("at once", []).append((time.perf_counter() - begun) * 1e3)
        return made

    boxes = await asyncio.gather(*(one() for _ in range(crowd)), return_exceptions=True)
    good = [box for box in boxes if not isinstance(box, BaseException)]
    await asyncio.gather(*(box.kill() for box in good))
    return len(boxes) - len(good)


failed = asyncio.run(many())
print(json.dumps({"took": took, "rates": rates, "failed": failed}))
