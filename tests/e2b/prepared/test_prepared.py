"""E2B's published code interpreter SDK against prepared virtual machines: Python runs, with what it imports, before they are anybody's, and they can be copied."""

import os
import re
import time
import urllib.request

import pytest
from e2b_code_interpreter import Sandbox

#: Nothing is asserted with it: what needs it has hung. Machines may be emulated.
PATIENCE = 240
DRAW = "import random, ssl, uuid; (random.random(), ssl.RAND_bytes(8).hex(), str(uuid.uuid4()))"
#: Answers with the host that it hears.
SERVER = """
import http.server
class Echo(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = self.headers["Host"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", 8000), Echo).serve_forever()
"""


def pooled():
    """How many boxes wait in the pool, and how often one was handed out."""
    asked = urllib.request.Request(os.environ["E2B_API_URL"] + "/metrics", headers={"Authorization": "Bearer " + os.environ["E2B_API_KEY"]})
    with urllib.request.urlopen(asked) as answer:
        text = answer.read().decode()
    return [int(re.search(rf"^{name} (\d+)", text, re.M).group(1)) for name in ("blastbox_pool_boxes", "blastbox_pool_hits_total")]


def until(found):
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        answer = found()
        if answer:
            return answer
        time.sleep(0.2)
    raise AssertionError("it never came")


@pytest.fixture(scope="module")
def two():
    until(lambda: pooled()[0] >= 2)
    boxes = [Sandbox.create(timeout=1800, request_timeout=PATIENCE) for _ in range(2)]
    assert pooled()[1] == 2
    yield boxes
    for box in boxes:
        box.kill()


def run(box, code):
    ran = box.run_code(code, timeout=PATIENCE, request_timeout=PATIENCE)
    assert ran.error is None, ran.error
    return ran.text


def test_the_first_code_finds_what_was_imported_and_no_two_draw_the_same(two):
    for box in two:
        assert run(box, "import sys; 'decimal' in sys.modules, 'decimal' in dir()") == "(True, False)"
    drawn = [eval(run(box, DRAW)) for box in two]
    assert all(one != other for one, other in zip(*drawn))


def test_copies_know_what_was_known_and_draw_their_own(two):
    source = two[0]
    run(source, "kept = 42")
    [fork] = source.fork(timeout=1800, request_timeout=PATIENCE)
    drawn = [eval(run(box, DRAW)) for box in (source, fork)]
    assert all(one != other for one, other in zip(*drawn))
    assert run(fork, "kept") == run(source, "kept") == "42"
    fork.kill()


def test_a_kernel_that_was_paused_to_disk_goes_on_and_its_copies_draw_their_own(two):
    box = two[1]
    run(box, "kept = 7")
    snapshot = box.create_snapshot(name="drawn", request_timeout=PATIENCE)
    box.pause(request_timeout=PATIENCE)
    box = Sandbox.connect(box.sandbox_id, timeout=1800, request_timeout=PATIENCE)
    begun = Sandbox.create(snapshot.snapshot_id, timeout=1800, request_timeout=PATIENCE)
    drawn = [eval(run(one, DRAW)) for one in (box, begun)]
    assert all(one != other for one, other in zip(*drawn))
    assert run(box, "kept") == run(begun, "kept") == "7"
    begun.kill()
    assert Sandbox.delete_snapshot(snapshot.snapshot_id)


def heard(box):
    """The host that the server in a sandbox hears; nothing, as long as it does not listen."""
    headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "8000"}
    try:
        with urllib.request.urlopen(urllib.request.Request(os.environ["E2B_SANDBOX_URL"], headers=headers)) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as no:
        assert no.code == 502, no.read()
        return None


def test_servers_of_copies_hear_the_host_that_the_original_was_given():
    network = {"mask_request_host": "inside:${PORT}"}
    source = Sandbox.create(timeout=1800, network=network, request_timeout=PATIENCE)
    source.files.write("/tmp/server.py", SERVER)
    source.commands.run("python3 /tmp/server.py", background=True, timeout=0)
    assert until(lambda: heard(source)) == "inside:8000"
    [fork] = source.fork(timeout=1800, request_timeout=PATIENCE)
    assert until(lambda: heard(fork)) == "inside:8000"
    assert fork.kill() and source.kill()
