"""What SDKs take for the daemon inside a sandbox, over plain HTTP: files, facts, who is let in."""

import base64
import gzip
import hashlib
import time

from conftest import Box, asked

OCTETS = {"Content-Type": "application/octet-stream"}
FORM = {"Content-Type": "multipart/form-data; boundary=XX"}


def part(name, file, body="body"):
    return f'--XX\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n\r\n{body}\r\n'


def signed(box, path, deed, user="", until=None):
    raw = f"{path}:{deed}:{user}:{box.token}" + (f":{until}" if until else "")
    found = base64.b64encode(hashlib.sha256(raw.encode()).digest()).decode().rstrip("=")
    return {"path": path, "signature": "v1_" + found, **({"username": user} if user else {}), **({"signature_expiration": until} if until else {})}


def test_who_is_let_in(wire, box):
    for token in None, "wrong":
        headers = {name: value for name, value in box.headers().items() if name != "X-Access-Token"}
        if token:
            headers["X-Access-Token"] = token
        for endpoint in "GET /envs", "GET /metrics", "POST /files/compose":
            assert wire.ask(endpoint, headers=headers, key=None).status == 401, endpoint
        assert wire.ask("GET /health", headers=headers, key=None).status == 204
        for endpoint in "GET /files", "HEAD /files", "POST /files":
            assert wire.ask(endpoint, query={"path": "a"}, headers={**headers, **OCTETS}, key=None).status == 401
    gone = Box({"sandboxID": "a" * 20, "envdAccessToken": "x"})
    for endpoint in "GET /health", "GET /envs", "GET /metrics", "GET /files", "POST /files", "POST /files/compose":
        said = wire.inside(gone, endpoint)
        assert said.status == 502 and said.json["sandboxId"] == gone.id, said
    # What belongs to whoever runs the sandbox is nobody's outside.
    for path in "/init", "/freeze", "/unfreeze", "/fsfreeze", "/fsthaw", "/collapse", "/nothing":
        assert asked("POST", path, box.headers(), b"{}").status == 404, path
    assert asked("PUT", "/envs", box.headers()).status == 405
    closed = asked("GET", "/", box.headers(8080))
    assert closed.json == {"code": 502, "message": "The sandbox is running but port is not open", "port": 8080, "sandboxId": box.id}


def test_facts(wire, box):
    assert wire.inside(box, "GET /health").status == 204
    envs = wire.inside(box, "GET /envs").json
    assert envs["SAID"] == "by its owner" and envs["E2B_SANDBOX"] == "true" and envs["E2B_SANDBOX_ID"] == box.id
    numbers = wire.inside(box, "GET /metrics").json
    for field in "ts cpu_count cpu_used_pct mem_total mem_used mem_cache mem_total_mib mem_used_mib disk_used disk_total".split():
        assert field in numbers, numbers


def test_files_come_and_go(wire, box):
    put = lambda path, body, **headers: wire.inside(box, "POST /files", query={"path": path}, headers={**OCTETS, **headers}, body=body)
    get = lambda path, **headers: wire.inside(box, "GET /files", query={"path": path}, headers=headers)
    assert put("d/one", b"first\n").json == [{"path": "/home/user/d/one", "name": "one", "type": "file"}]
    assert put("d/two", gzip.compress(b"second\n"), **{"Content-Encoding": "gzip"}).status == 200
    read = get("d/two")
    assert read.text == "second\n" and read.headers["Content-Type"] == "application/octet-stream" and read.headers["Vary"] == "Accept-Encoding"
    assert get("d/two", **{"Accept-Encoding": "gzip"}).headers["Content-Encoding"] == "gzip"
    assert get("d/two", Range="bytes=0-2").text == "sec"
    assert get("d/two", Range="bytes=99-").status == 416
    assert get("d/two", **{"If-Modified-Since": "Fri, 31 Dec 2100 23:59:59 GMT"}).status == 304
    assert get("d/two", **{"Accept-Encoding": "identity;q=0, gzip;q=0"}).status == 406
    assert wire.inside(box, "HEAD /files", query={"path": "d/two"}).headers["Content-Length"] == "7"
    assert wire.inside(box, "HEAD /files", query={"path": "none"}).status == 404
    assert get("none").status == 404
    assert get("d").status == 400
    assert get("~other/x").status == 400
    assert get("/root/x").status in (403, 404)
    assert put("/etc/x", b"x").status == 403
    for endpoint in "GET /files", "POST /files":
        assert wire.inside(box, endpoint, query={"path": "a", "username": "who"}, headers=OCTETS).status == 401
    assert asked("DELETE", "/files?path=d", box.headers()).status == 405

    assert put("d", b"x").status == 400
    assert wire.inside(box, "POST /files", headers=OCTETS, body=b"x").status == 400
    assert wire.inside(box, "POST /files", query={"path": "a"}, headers={"Content-Type": "text/plain"}, body=b"x").status == 400
    assert put("a", b"not gzip", **{"Content-Encoding": "gzip"}).status == 400
    assert put("a", b"x", **{"X-Metadata-Key": "not printable: é"}).status == 400
    assert put("a", b"x", **{"X-Metadata-" + "k" * 247: "long"}).status == 400
    assert put("a", b"x", **{"X-Metadata-Key": "v" * 5000}).status == 400
    assert put("a", b"x", **{"X-Metadata-Key": "value"}).json[0]["metadata"] == {"key": "value"}
    both = part("file", "m/one") + part("file", "/tmp/m-two") + "--XX--\r\n"
    wrote = wire.inside(box, "POST /files", headers=FORM, body=both.encode())
    assert [one["path"] for one in wrote.json] == ["/home/user/m/one", "/tmp/m-two"], wrote
    for wrong in part("file", "same") + part("file", "./same") + "--XX--\r\n", part("other", "x") + "--XX--\r\n", part("file", "half"):
        assert wire.inside(box, "POST /files", headers=FORM, body=wrong.encode()).status == 400, wrong
    assert get("half").status == 404

    compose = lambda **body: wire.inside(box, "POST /files/compose", json_body=body)
    made = compose(source_paths=["d/one", "d/two"], destination="whole")
    assert made.status == 200 and made.json == {"path": "/home/user/whole", "name": "whole", "type": "file"}
    assert get("whole").text == "first\nsecond\n" and get("d/one").status == 404
    assert compose(source_paths=["none"], destination="x").status == 404
    assert compose(source_paths=[], destination="x").status == 400
    assert compose(source_paths=["whole"], destination="x", username="who").status == 401


def test_a_disk_that_is_full(wire):
    made = wire.make()
    try:
        fill = {"process": {"cmd": "/bin/sh", "args": ["-c", "cat /dev/zero > fill"]}, "stdin": False}
        assert wire.stream(made, "process.Process/Start", fill)[0] == "ok"
        said = wire.inside(made, "POST /files", query={"path": "much"}, headers=OCTETS, body=bytes(1 << 20))
        assert said.status == 507, said
        whole = {"source_paths": ["fill"], "destination": "whole"}
        assert wire.inside(made, "POST /files/compose", json_body=whole).status == 507
        assert wire.inside(made, "GET /files", query={"path": "much"}).status == 404
    finally:
        wire.end(made)


def test_addresses_that_are_signed(wire, box):
    wire.inside(box, "POST /files", query={"path": "signed"}, headers=OCTETS, body=b"signed")
    later, earlier = int(time.time()) + 600, int(time.time()) - 600
    assert wire.ask("GET /files", query=signed(box, "signed", "read"), key=None).text == "signed"
    assert wire.ask("GET /files", query=signed(box, "signed", "read", "user", later), key=None).text == "signed"
    upload = signed(box, "up", "write", until=later)
    assert wire.ask("POST /files", query=upload, headers=OCTETS, body=b"up", key=None).status == 200
    for endpoint, deed in ("GET /files", "read"), ("POST /files", "write"):
        late = wire.ask(endpoint, query=signed(box, "signed", deed, until=earlier), key=None)
        assert late.status == 401 and late.json == {"code": 401, "message": "signature is already expired"}, late
        other = signed(box, "signed", "write" if deed == "read" else "read")
        assert wire.ask(endpoint, query=other, key=None).json["message"] == "invalid signature"
        named = {name: value for name, value in box.headers().items() if name != "X-Access-Token"}
        assert wire.ask(endpoint, query={"path": "a"}, headers=named, key=None).json["message"] == "missing signature query parameter"
