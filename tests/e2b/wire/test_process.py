"""process.Process: every method, every word for what went wrong."""

import base64
import http.client
import json

from conftest import DAEMON, PATIENCE, frame, until

PROCESS = "process.Process/"
START = {"cmd": "/bin/sh", "args": ["-c", "cat"]}


def encoded(text):
    return base64.b64encode(text.encode()).decode()


class Running:
    """A process whose stream stays open; its pid."""

    def __init__(self, box, headers=None, **start):
        headers = {**box.headers(), "Content-Type": "application/connect+json", **(headers or {})}
        self.line = http.client.HTTPConnection(DAEMON.hostname, DAEMON.port, timeout=PATIENCE)
        self.line.request("POST", f"/{PROCESS}Start", frame({"process": START, **start}), headers)
        self.answer = self.line.getresponse()
        self.pid = self.read()["event"]["start"]["pid"]

    def read(self):
        """The next message."""
        return json.loads(self.answer.read(int.from_bytes(self.answer.read(5)[1:], "big")))

    def __enter__(self):
        return {"pid": self.pid}

    def __exit__(self, *_):
        self.line.close()


def test_a_command_from_start_to_end(wire, box):
    word, events = wire.stream(box, PROCESS + "Start", {"process": {"cmd": "/bin/sh", "args": ["-c", "echo out; echo err >&2; exit 3"]}, "stdin": False})
    assert word == "ok" and list(events[0]["event"]) == ["start"], events
    assert events[-1]["event"]["end"] == {"exitCode": 3, "exited": True, "status": "exit status 3", "error": "exit status 3"}
    _, events = wire.stream(box, PROCESS + "Start", {"process": {"cmd": "/bin/sh", "args": ["-c", "kill -9 $$"]}})
    assert events[-1]["event"]["end"]["status"] == "signal: killed"
    for wrong in [
        {"process": {"cmd": "/no/such"}},
        {"process": {"cmd": "/bin/sh", "cwd": "/no/such"}},
        {"process": {"cmd": "/bin/sh", "cwd": "~other"}},
        {"process": {"cmd": "/bin/echo", "args": ["x" * 200_000]}},
        {"process": {"cmd": 5}},
        {"process": {}},
    ]:
        assert wire.stream(box, PROCESS + "Start", wrong)[0] == "invalid_argument", wrong
    assert wire.stream(box, PROCESS + "Start")[0] == "invalid_argument"
    user = {"Authorization": "Basic " + encoded("who:")}
    assert wire.stream(box, PROCESS + "Start", {"process": START}, headers=user)[0] == "unauthenticated"
    slow = {"process": {"cmd": "/bin/sleep", "args": ["1000"]}, "stdin": False}
    assert wire.stream(box, PROCESS + "Start", slow, headers={"Connect-Timeout-Ms": "200"})[0] == "deadline_exceeded"


def test_a_command_that_is_spoken_to(wire, box):
    none = {"process": {"pid": 999_999}}
    for procedure, more in [
        ("SendInput", {"input": {"stdin": encoded("x")}}),
        ("SendSignal", {"signal": "SIGNAL_SIGKILL"}),
        ("CloseStdin", {}),
        ("Update", {"pty": {"size": {"cols": 1, "rows": 1}}}),
    ]:
        assert wire.call(box, PROCESS + procedure, {**none, **more})[0] == "not_found", procedure
        assert wire.call(box, PROCESS + procedure, more)[0] == "invalid_argument", procedure
        user = {"Authorization": "Basic " + encoded("who:")}
        assert wire.call(box, PROCESS + procedure, {**none, **more}, headers=user)[0] == "unauthenticated", procedure
    assert wire.stream(box, PROCESS + "Connect", none)[0] == "not_found"
    assert wire.stream(box, PROCESS + "Connect", {"process": {"tag": "none"}})[0] == "not_found"
    assert wire.stream(box, PROCESS + "StreamInput", {"start": none})[0] == "not_found"
    assert wire.stream(box, PROCESS + "StreamInput", {"data": {"input": {"stdin": encoded("x")}}})[0] == "invalid_argument"
    with Running(box, tag="spoken") as process:
        of = {"process": process}
        assert "spoken" in [one.get("tag") for one in wire.call(box, PROCESS + "List", {})[1]["processes"]]
        assert wire.call(box, PROCESS + "SendInput", {**of, "input": {"stdin": encoded("in\n")}})[0] == "ok"
        assert wire.call(box, PROCESS + "SendInput", {**of, "input": {"pty": encoded("in")}})[0] == "internal"
        assert wire.call(box, PROCESS + "SendInput", {**of, "input": {}})[0] == "unimplemented"
        assert wire.call(box, PROCESS + "SendSignal", {**of, "signal": "SIGNAL_UNSPECIFIED"})[0] == "unimplemented"
        assert wire.call(box, PROCESS + "Update", {**of, "pty": {"size": {"cols": 1, "rows": 1}}})[0] == "failed_precondition"
        assert wire.stream(box, PROCESS + "Connect", of, headers={"Connect-Timeout-Ms": "100"})[0] == "deadline_exceeded"
        told = {"start": of}, {"data": {"input": {"stdin": encoded("streamed\n")}}}, {"keepalive": {}}
        assert wire.stream(box, PROCESS + "StreamInput", *told) == ("ok", [{}])
        assert wire.call(box, PROCESS + "CloseStdin", of)[0] == "ok"
        until(lambda: wire.call(box, PROCESS + "List", {})[1].get("processes", []) == [])
        # What has just ended is still known to whoever connects.
        word, events = wire.stream(box, PROCESS + "Connect", of)
        assert (word, [list(event["event"])[0] for event in events]) == ("ok", ["start", "end"]), events
    with Running(box, stdin=False) as process:
        until(lambda: wire.call(box, PROCESS + "List", {})[1].get("processes", []) == [])
        assert wire.call(box, PROCESS + "SendInput", {"process": process, "input": {"stdin": ""}})[0] == "not_found"
    with Running(box, pty={"size": {"cols": 80, "rows": 24}}) as process:
        of = {"process": process}
        assert wire.call(box, PROCESS + "Update", {**of, "pty": {"size": {"cols": 100, "rows": 40}}})[0] == "ok"
        assert wire.call(box, PROCESS + "SendInput", {**of, "input": {"pty": encoded("\x04")}})[0] in ("ok", "not_found")
        assert wire.call(box, PROCESS + "CloseStdin", of)[0] in ("failed_precondition", "not_found")
    with Running(box, pty={"size": {"cols": 80, "rows": 24}}) as process:
        of = {"process": process}
        assert wire.call(box, PROCESS + "CloseStdin", of)[0] == "failed_precondition"
        assert wire.call(box, PROCESS + "SendInput", {**of, "input": {"stdin": encoded("x")}})[0] == "internal"
        assert wire.call(box, PROCESS + "SendSignal", {**of, "signal": "SIGNAL_SIGKILL"})[0] == "ok"
        until(lambda: wire.call(box, PROCESS + "List", {})[1].get("processes", []) == [])


def test_a_silent_stream_says_that_it_is_there(wire, box):
    running = Running(box, headers={"Keepalive-Ping-Interval": "1"})
    with running as process:
        until(lambda: "keepalive" in running.read()["event"])
        wire.hear(f"POST /{PROCESS}Start", "ok", '"keepalive":{}')
        assert wire.call(box, PROCESS + "SendSignal", {"process": process, "signal": "SIGNAL_SIGKILL"})[0] == "ok"


def test_what_is_no_call(wire, box):
    assert wire.call(box, PROCESS + "Nothing", {})[0] == "unimplemented"


def test_who_is_let_in(wire, box):
    wire.who_is_let_in(box, [PROCESS + name for name in "List Start Connect Update SendInput StreamInput SendSignal CloseStdin".split()])
