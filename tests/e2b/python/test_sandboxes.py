"""The control plane: create, list, get, kill, timeout, connect, pause, resume, metrics."""

import datetime
import http.client
import os
import urllib.parse
import uuid

import httpx
import pytest
from conftest import PATIENCE, URL, paused_or_skip, until
from e2b import (
    AuthenticationException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    SandboxNotRunningException,
)


def everything(**query):
    pages = Sandbox.list(query=SandboxQuery(**query))
    found = []
    while pages.has_next:
        found.extend(pages.next_items())
    return found


def test_a_sandbox_is_made_shown_and_killed():
    box = Sandbox.create(timeout=120, metadata={"suite": "one"})
    assert box.sandbox_id.isalnum() and box.sandbox_id == box.sandbox_id.lower()
    info = box.get_info()
    assert info.sandbox_id == box.sandbox_id
    assert info.template_id == "base" and info.state == SandboxState.RUNNING
    assert info.metadata == {"suite": "one"}
    assert info.cpu_count >= 1 and info.memory_mb >= 128
    assert info.allow_internet_access is None
    assert info.end_at > info.started_at
    assert box.is_running()
    assert box.kill() is True
    assert box.kill() is False
    assert box.is_running() is False
    with pytest.raises(SandboxNotFoundException):
        Sandbox.get_info(box.sandbox_id)
    with pytest.raises(SandboxNotRunningException):
        box.commands.run("true")


def test_a_list_is_filtered_paged_and_newest_first():
    mark = uuid.uuid4().hex
    note = {"suite": mark, "odd key & =": "odd välue/+ %"}
    boxes = [Sandbox.create(timeout=600, metadata=note) for _ in range(3)]
    other = Sandbox.create(timeout=600, metadata={"suite": mark})
    try:
        made = [box.sandbox_id for box in boxes]
        listed = [info.sandbox_id for info in everything(metadata=note)]
        assert sorted(listed) == sorted(made)
        times = [info.started_at for info in everything(metadata=note)]
        assert times == sorted(times, reverse=True)
        assert len(everything(metadata={"suite": mark})) == 4
        assert everything(metadata={"suite": mark, "none": "x"}) == []

        pages = Sandbox.list(query=SandboxQuery(metadata=note), limit=2)
        first = pages.next_items()
        assert len(first) == 2 and pages.has_next
        second = pages.next_items()
        assert len(second) == 1 and not pages.has_next
        assert [info.sandbox_id for info in first + second] == listed

        assert len(everything(metadata=note, state=[SandboxState.RUNNING])) == 3
        assert everything(metadata=note, state=[SandboxState.PAUSED]) == []
    finally:
        for box in [*boxes, other]:
            box.kill()


def test_a_timeout_is_set_and_connect_never_shortens_a_life():
    box = Sandbox.create(timeout=600)
    try:
        box.set_timeout(1200)
        longer = box.get_info().end_at
        Sandbox.connect(box.sandbox_id, timeout=60)
        assert box.get_info().end_at == longer
        again = Sandbox.connect(box.sandbox_id, timeout=3600)
        assert box.get_info().end_at > longer
        assert again.commands.run("echo same").stdout == "same\n"
        box.set_timeout(300)
        assert box.get_info().end_at < longer
    finally:
        box.kill()


def test_a_sandbox_ends_when_its_time_is_over():
    box = Sandbox.create(timeout=600)
    box.set_timeout(0)
    until(lambda: not box.is_running())
    with pytest.raises(SandboxNotFoundException):
        box.set_timeout(60)
    assert box.kill() is False


def test_a_paused_sandbox_keeps_its_files_and_processes():
    box = Sandbox.create(timeout=600, metadata={"suite": uuid.uuid4().hex})
    try:
        box.files.write("kept.txt", "kept")
        sleeper = box.commands.run("sleep 1000", background=True)
        assert paused_or_skip(box.pause) is True
        assert box.pause() is False
        assert box.is_running() is False
        assert box.get_info().state == SandboxState.PAUSED
        paused = everything(metadata=box.get_info().metadata, state=[SandboxState.PAUSED])
        assert [info.sandbox_id for info in paused] == [box.sandbox_id]
        with pytest.raises(SandboxNotRunningException):
            box.files.read("kept.txt")
        back = Sandbox.connect(box.sandbox_id, timeout=600)
        assert back.files.read("kept.txt") == "kept"
        assert sleeper.pid in [process.pid for process in back.commands.list()]
        assert back.is_running()
    finally:
        box.kill()


def test_a_paused_sandbox_can_be_killed():
    box = Sandbox.create(timeout=600)
    paused_or_skip(box.pause)
    assert box.kill() is True
    assert box.kill() is False


def test_traffic_wakes_a_sandbox_whose_owner_wants_that():
    box = Sandbox.create(timeout=600, lifecycle={"on_timeout": "pause", "auto_resume": True})
    try:
        paused_or_skip(box.pause)
        assert box.commands.run("echo awake").stdout == "awake\n"
        assert box.get_info().state == SandboxState.RUNNING
    finally:
        box.kill()


def test_a_server_inside_is_reached_by_its_host():
    box = Sandbox.create(timeout=600, network={"allow_public_traffic": False})
    try:
        box.files.write("page.txt", "from inside")
        server = box.commands.run("python3 -u -m http.server 8000 --bind 127.0.0.1", background=True)
        daemon = urllib.parse.urlsplit(URL)
        host = box.get_host(8000)
        assert host.startswith(f"8000-{box.sandbox_id}.")

        def ask(headers):
            line = http.client.HTTPConnection(daemon.hostname, daemon.port, timeout=PATIENCE)
            line.request("GET", "/page.txt", headers={"Host": host, **headers})
            answer = line.getresponse()
            return answer.status, answer.read()

        token = {"E2B-Traffic-Access-Token": box.traffic_access_token}
        until(lambda: ask(token)[0] == 200)
        assert ask(token) == (200, b"from inside")
        assert ask({})[0] == 403
        server.kill()
    finally:
        box.kill()


#: Says which host it hears; with a certificate of its own, over TLS.
HEARS = '''
import http.server, ssl, sys
class Says(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        said = self.headers["Host"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Says)
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
'''


def test_servers_inside_hear_the_name_and_speak_the_tls_that_their_owner_names():
    network = {"mask_request_host": "localhost:${PORT}", "https_ports": [8443, 8444]}
    box = Sandbox.create(timeout=600, network=network)
    try:
        shown = box.get_info().network
        assert shown["mask_request_host"] == network["mask_request_host"]
        assert sorted(shown["https_ports"]) == network["https_ports"]
        # A certificate that nobody has signed: nobody asks.
        with open(os.environ["E2B_PAIR"], encoding="ascii") as pair:
            box.files.write_files([{"path": "pair.pem", "data": pair.read()}, {"path": "hears.py", "data": HEARS}])
        for words in "8000", "8443 pair.pem", "8444":
            box.commands.run(f"python3 hears.py {words}", background=True)
        daemon = urllib.parse.urlsplit(URL)

        def ask(port):
            line = http.client.HTTPConnection(daemon.hostname, daemon.port, timeout=PATIENCE)
            line.request("GET", "/", headers={"Host": box.get_host(port)})
            answer = line.getresponse()
            return answer.status, answer.read().decode()

        for port in 8000, 8443:
            assert until(lambda: (said := ask(port))[0] == 200 and said) == (200, f"localhost:{port}")
        # One that speaks no TLS where its owner says that it does.
        assert until(lambda: (said := ask(8444))[0] == 502 and "port is not open" not in said[1])
    finally:
        box.kill()


def test_what_was_decided_when_a_sandbox_was_made_is_told_so():
    box = Sandbox.create(timeout=600)
    try:
        box.update_network({"allow_internet_access": False})
        with pytest.raises(SandboxException, match="409: .*decided when it is made"):
            box.update_network({"allow_out": ["example.com"]})
        url = f"{URL}/sandboxes/{box.sandbox_id}/network"
        for spoken in {"httpsPorts": [8443]}, {"maskRequestHost": "localhost"}:
            said = httpx.put(url, json=spoken, headers={"X-API-KEY": os.environ["E2B_API_KEY"]})
            assert said.status_code == 409 and "spoken to" in said.text, said.text
    finally:
        box.kill()


def test_hosts_that_a_sandbox_reaches_can_be_replaced():
    try:
        box = Sandbox.create(timeout=600, network={"allow_out": ["a.example.com"]})
    except SandboxException as error:
        if "/dev/net/tun" in str(error):
            pytest.skip("sandboxes with network need /dev/net/tun")
        raise
    try:
        names = "for name in a b; do getent hosts $name.example.com > /dev/null && echo $name; done; true"
        assert box.commands.run(names).stdout.split() == ["a"]
        box.update_network({"allow_out": ["b.example.com"]})
        assert box.commands.run(names).stdout.split() == ["b"]
    finally:
        box.kill()


def test_metrics_have_every_number():
    box = Sandbox.create(timeout=600)
    try:
        box.files.write("some.bin", b"x" * 1_000_000)
        samples = until(box.get_metrics)
        last = samples[-1]
        assert last.cpu_count >= 1 and last.cpu_used_pct >= 0
        assert 0 < last.mem_used < last.mem_total
        assert 1_000_000 <= last.disk_used < last.disk_total
        long_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=2)
        earlier = long_ago + datetime.timedelta(days=1)
        assert box.get_metrics(start=long_ago, end=earlier) == []
    finally:
        box.kill()


def test_what_is_refused_says_why():
    with pytest.raises(AuthenticationException):
        Sandbox.create(api_key="e2b_not_a_key")
    with pytest.raises(SandboxException, match="404: template 'no-such' not found; known templates: .*base"):
        Sandbox.create("no-such")
    with pytest.raises(SandboxException, match="400: allow_internet_access: true is refused"):
        Sandbox.create(allow_internet_access=True)
    for network, what in [
        ({"allow_out": ["93.184.216.0/24"]}, "93.184.216.0/24"),
        ({"allow_out": ["10.0.0.1"]}, "10.0.0.1"),
        ({"allow_out": ["*.com"]}, r"\*.com"),
        ({"deny_out": ["93.184.216.34"]}, "denyOut"),
        ({"mask_request_host": "no host"}, "network.maskRequestHost"),
        ({"https_ports": [49983]}, "network.httpsPorts"),
        ({"egress_proxy": {"address": "proxy.test:1080"}}, "network.egressProxy"),
        ({"rules": {"a.test": [{"transform": {"headers": {"x": "y"}}}]}}, "network.rules"),
    ]:
        with pytest.raises(SandboxException, match=f"400: .*{what}"):
            Sandbox.create(network=network)
    for unknown in ["abc", "a" * 20]:
        assert Sandbox.kill(unknown) is False
        with pytest.raises(SandboxNotFoundException):
            Sandbox.set_timeout(unknown, 60)
        with pytest.raises(SandboxNotFoundException):
            Sandbox.connect(unknown)
        with pytest.raises(SandboxNotFoundException):
            Sandbox.create_snapshot(unknown)


def test_the_network_is_closed_whether_that_is_said_or_not():
    box = Sandbox.create(timeout=600, allow_internet_access=False)
    try:
        assert box.get_info().allow_internet_access is False
        names = box.commands.run("ls /sys/class/net 2>/dev/null || true; cat /proc/net/dev 2>/dev/null || true").stdout
        assert "eth" not in names
        script = "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 1)\nexcept OSError as e: print(e.errno)"
        assert box.commands.run(f"python3 -c \"{script}\"").stdout.strip() == "101"
    finally:
        box.kill()
