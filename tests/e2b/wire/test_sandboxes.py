"""The control plane about sandboxes, both generations."""

import json
import pathlib
import threading

from conftest import KEY, Box, asked, processes, status_of, stopped, until

NEW = {"templateID": "base", "timeout": 600}
NOBODY = "a" * 20


def test_a_sandbox_is_made_by_both_generations(wire):
    for endpoint in "POST /v2/sandboxes", "POST /sandboxes":
        made = wire.ask(endpoint, json_body={**NEW, "secure": True})
        assert made.status == 201, made
        for field in "templateID", "sandboxID", "clientID", "envdVersion", "envdAccessToken":
            assert isinstance(made.json[field], str), made
        assert wire.ask("DELETE /sandboxes/{id}", made.json["sandboxID"]).status == 204
        assert wire.ask("DELETE /sandboxes/{id}", made.json["sandboxID"]).status == 404
        assert wire.ask(endpoint, json_body=NEW, key=None).status == 401
        assert wire.ask(endpoint, json_body=NEW, key="e2b_0000").status == 401
        for wrong in [
            {},
            {**NEW, "timeout": -1},
            {**NEW, "allow_internet_access": True},
            {**NEW, "mcp": {"x": {}}},
            {**NEW, "iam": {"tokens": {"t": {"audience": "a", "tokenType": "t"}}}},
            {**NEW, "autoPauseMemory": False},
            {**NEW, "network": {"allowOut": ["*"]}},
            {**NEW, "network": {"denyOut": ["example.com"]}},
            {**NEW, "network": {"httpsPorts": [49983]}},
            {**NEW, "network": {"egressProxy": {"address": "proxy.test:1080"}}},
            {**NEW, "network": {"allowOut": ["*.example.com"], "rules": {"*.example.com": [{"transform": {"headers": {"X-A": "12345678"}}}]}}},
            {**NEW, "network": {"allowOut": ["a.test"], "rules": {"a.test": [{"transform": {"headers": {"X-A": "${e2b.identity.tokens.t}"}}}]}}},
        ]:
            assert wire.ask(endpoint, json_body=wrong).status == 400, wrong
        assert wire.ask(endpoint, body=b"{", headers={"Content-Type": "application/json"}).status == 400
        assert wire.ask(endpoint, json_body={**NEW, "templateID": "nope"}).status == 404
        assert wire.ask(endpoint, json_body=NEW, headers={"Idempotency-Key": "Not A Key"}).status == 400


def test_a_create_under_a_key_happens_once(wire):
    endpoint = "POST /v2/sandboxes"
    once = {"Idempotency-Key": "wire-1"}
    first = wire.ask(endpoint, json_body=NEW, headers=once)
    assert wire.ask(endpoint, json_body=NEW, headers=once).json["sandboxID"] == first.json["sandboxID"]
    assert wire.ask(endpoint, json_body={**NEW, "timeout": 5}, headers=once).status == 422
    wire.end(Box(first.json))

    def both(number):
        """Two at once under one key; whoever comes second while the first is made is told so."""
        said = []

        def one():
            said.append(wire.ask(endpoint, json_body=NEW, headers={"Idempotency-Key": f"wire-at-once-{number}"}))

        threads = [threading.Thread(target=one) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {answer.status for answer in said} <= {201, 409}, said
        assert len({answer.json["sandboxID"] for answer in said if answer.status == 201}) == 1, said
        wire.end(next(Box(answer.json) for answer in said if answer.status == 201))
        return any(answer.status == 409 for answer in said)

    numbers = iter(range(10_000))
    until(lambda: both(next(numbers)))


def test_sandboxes_are_listed(wire, box):
    for endpoint in "GET /v2/sandboxes", "GET /sandboxes":
        listed = wire.ask(endpoint)
        assert listed.status == 200 and box.id in [one["sandboxID"] for one in listed.json]
        for field in "templateID sandboxID clientID startedAt endAt state envdVersion cpuCount memoryMB diskSizeMB".split():
            assert field in listed.json[0], listed
        assert wire.ask(endpoint, key=None).status == 401
    for query in {"limit": "0"}, {"limit": "101"}, {"order": "x"}, {"state": "x"}, {"startedAfter": "x"}, {"nextToken": "%"}:
        assert wire.ask("GET /v2/sandboxes", query=query).status == 400, query
    assert wire.ask("GET /v2/sandboxes", query={"limit": "1"}).headers["X-Total-Running"]


def test_a_sandbox_is_shown_and_timed(wire, box):
    shown = wire.ask("GET /sandboxes/{id}", box.id)
    assert shown.status == 200 and shown.json["lifecycle"] == {"autoResume": False, "onTimeout": "kill"}, shown
    for endpoint, body in [
        ("GET /sandboxes/{id}", None),
        ("DELETE /sandboxes/{id}", None),
        ("POST /sandboxes/{id}/timeout", {"timeout": 600}),
        ("POST /sandboxes/{id}/refreshes", {}),
        ("POST /sandboxes/{id}/pause", {}),
        ("POST /sandboxes/{id}/resume", {}),
        ("POST /sandboxes/{id}/connect", {"timeout": 1}),
        ("POST /v2/sandboxes/{id}/connect", {}),
        ("PUT /sandboxes/{id}/network", {}),
        ("GET /sandboxes/{id}/metrics", None),
        ("GET /sandboxes/{id}/logs", None),
        ("GET /v2/sandboxes/{id}/logs", None),
        ("POST /sandboxes/{id}/snapshots", {}),
        ("POST /sandboxes/{id}/fork", {}),
    ]:
        for unknown in NOBODY, "nothing":
            assert wire.ask(endpoint, unknown, json_body=body).status == 404, endpoint
        assert wire.ask(endpoint, box.id, json_body=body, key=None).status == 401, endpoint
    assert wire.ask("POST /sandboxes/{id}/timeout", box.id, json_body={"timeout": 900}).status == 204
    assert wire.ask("POST /sandboxes/{id}/timeout", box.id, json_body={}).status == 400
    assert wire.ask("POST /sandboxes/{id}/timeout", box.id, json_body={"timeout": -1}).status == 400
    assert wire.ask("POST /sandboxes/{id}/refreshes", box.id, json_body={"duration": 1}).status == 204
    assert wire.ask("POST /sandboxes/{id}/refreshes", box.id, json_body={"duration": 3601}).status == 400
    assert wire.ask("POST /sandboxes/{id}/connect", box.id, json_body={"timeout": 1}).status == 200
    assert wire.ask("POST /sandboxes/{id}/connect", box.id, json_body={}).status == 400
    assert wire.ask("POST /v2/sandboxes/{id}/connect", box.id, json_body={}).status == 200
    assert wire.ask("POST /v2/sandboxes/{id}/connect", box.id, json_body={"timeout": -1}).status == 400
    assert wire.ask("POST /sandboxes/{id}/resume", box.id, json_body={}).status == 409
    assert wire.ask("POST /sandboxes/{id}/pause", box.id, json_body={"memory": False}).status == 400


def test_numbers_logs_and_the_network(wire, box):
    numbers = wire.ask("GET /sandboxes/{id}/metrics", box.id).json[0]
    for field in "timestamp timestampUnix cpuCount cpuUsedPct memUsed memTotal memCache diskUsed diskTotal".split():
        assert field in numbers, numbers
    assert wire.ask("GET /sandboxes/{id}/metrics", box.id, query={"start": "1", "end": "2"}).json == []
    assert wire.ask("GET /sandboxes/{id}/metrics", box.id, query={"start": "x"}).status == 400
    assert wire.ask("GET /sandboxes/{id}/metrics", box.id, query={"start": "2", "end": "1"}).status == 400
    many = wire.ask("GET /sandboxes/metrics", query={"sandbox_ids": f"{box.id},{NOBODY}"})
    assert list(many.json["sandboxes"]) == [box.id]
    assert wire.ask("GET /sandboxes/metrics").status == 400
    assert wire.ask("GET /sandboxes/metrics", query={"sandbox_ids": ",".join([NOBODY] * 101)}).status == 400
    assert wire.ask("GET /sandboxes/metrics", key=None).status == 401
    logs = wire.ask("GET /sandboxes/{id}/logs", box.id).json
    assert {"timestamp", "line"} <= set(logs["logs"][0]) and {"message", "level", "fields"} <= set(logs["logEntries"][0])
    assert wire.ask("GET /sandboxes/{id}/logs", box.id, query={"start": "x"}).status == 400
    assert wire.ask("GET /v2/sandboxes/{id}/logs", box.id, query={"search": "created"}).json["logs"]
    for query in {"level": "x"}, {"direction": "x"}, {"cursor": "x"}, {"search": "x" * 257}:
        assert wire.ask("GET /v2/sandboxes/{id}/logs", box.id, query=query).status == 400, query
    assert wire.ask("PUT /sandboxes/{id}/network", box.id, json_body={"denyOut": ["0.0.0.0/0"]}).status == 204
    assert wire.ask("PUT /sandboxes/{id}/network", box.id, json_body={"allowOut": ["a.test"]}).status == 409
    assert wire.ask("PUT /sandboxes/{id}/network", box.id, json_body={"allowOut": ["8.8.8.0/24"]}).status == 400


def test_a_sandbox_of_another_tier_cannot_be_copied(wire, box):
    for body in {}, {"memory": False}, {"name": "a b"}:
        assert wire.ask("POST /sandboxes/{id}/snapshots", box.id, json_body=body).status == 400, body
    assert wire.ask("POST /sandboxes/{id}/snapshots", box.id, json_body={"name": "base"}).status == 403
    for body in {}, {"count": 0}, {"count": 101}, {"timeout": -1}:
        assert wire.ask("POST /sandboxes/{id}/fork", box.id, json_body=body).status == 400, body
    assert wire.ask("GET /snapshots").json == []
    assert wire.ask("GET /snapshots", query={"limit": "0"}).status == 400
    assert wire.ask("GET /snapshots", key=None).status == 401


def test_what_there_is_not(wire):
    assert wire.ask("GET /health", key=None).status == 204
    for method, path, status in [
        ("GET", "/sandboxes/x/nothing", 404),
        ("GET", "/v2/sandboxes/x/y/z", 404),
        ("PATCH", "/sandboxes/x", 405),
        ("PUT", "/snapshots", 405),
        ("GET", "/templates/tags", 405),
        ("POST", "/volumecontent/x/file", 405),
        ("DELETE", "/health", 405),
    ]:
        assert asked(method, path, {"X-API-KEY": KEY}).status == status, path
    assert asked("GET", "/sandboxes/x/nothing", {}).status == 401
    # Inside a sandbox, and nothing says of which.
    for path in "/files?path=a", "/envs", "/process.Process/List", "/execute", "/contexts", "/init":
        said = asked("GET", path, {})
        assert said.status == 400 and "E2b-Sandbox-Id" in said.text, said
    for half in {"E2b-Sandbox-Id": NOBODY}, {"E2b-Sandbox-Port": "49983"}:
        assert asked("GET", "/health", half).status == 400


def test_a_sandbox_is_paused_and_goes_on(wire, box):
    made = wire.make()
    try:
        said = wire.ask("POST /sandboxes/{id}/pause", made.id, json_body={})
        if said.status == 500 and "could not be paused" in said.text:
            for endpoint in "resume", "connect":
                wire.missing = {line: None for line in wire.missing if not line[0].endswith(endpoint)}
            wire.leave_out("POST /sandboxes/{id}/pause", "this host freezes no box")
        assert said.status == 204, said
        assert wire.ask("POST /sandboxes/{id}/pause", made.id, json_body={}).status == 409
        assert wire.ask("POST /sandboxes/{id}/timeout", made.id, json_body={"timeout": 5}).status == 404
        assert wire.ask("GET /sandboxes/{id}", made.id).json["state"] == "paused"
        for endpoint in "POST /sandboxes/{id}/resume", "POST /sandboxes/{id}/connect", "POST /v2/sandboxes/{id}/connect":
            assert wire.ask(endpoint, made.id, json_body={"timeout": 600, "memory": False}).status == 400
            assert wire.ask(endpoint, made.id, json_body={"timeout": 600}).status == 201
            assert wire.ask("POST /sandboxes/{id}/pause", made.id, json_body={}).status == 204
        gone = asked("GET", "/envs", made.headers())
        assert gone.status == 502 and gone.json == {"code": 502, "message": "The sandbox was not found", "sandboxId": made.id}
    finally:
        wire.end(made)
    assert json.loads(asked("GET", "/envs", made.headers()).text)["message"] == "The sandbox was not found"


def agent_of(wire, box):
    """The process that answers for a sandbox: the first one in it, as the host sees it."""
    mark = f"mark-of-{box.id}"
    script = f"sh -c 'sleep 1000000; :' {mark} > /dev/null 2>&1 &"
    assert wire.stream(box, "process.Process/Start", {"process": {"cmd": "/bin/sh", "args": ["-c", script]}, "stdin": False})[0] == "ok"

    def marked():
        for pid in processes():
            try:
                words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if mark.encode() in words:
                return pid

    pid = until(marked)
    while status_of(pid)["NSpid"].split()[-1] != "1":
        pid = int(status_of(pid)["PPid"])
    return pid


def test_a_pause_that_wants_an_agent_which_answers(wire):
    made = wire.make()
    pause = "POST /sandboxes/{id}/pause"
    try:
        try:
            with stopped([agent_of(wire, made)]):
                said = wire.ask(pause, made.id, json_body={"requireHealthyGuest": True})
                assert said.status == 503 and "error_code" not in said.json, said
                assert wire.ask("GET /sandboxes/{id}", made.id).json["state"] == "running"
        except PermissionError:
            wire.leave_out(pause, "whoever runs the tests may not stop a process of a sandbox")
        said = wire.ask(pause, made.id, json_body={"requireHealthyGuest": True})
        assert said.status == 204 or "could not be paused" in said.text, said
    finally:
        wire.end(made)
