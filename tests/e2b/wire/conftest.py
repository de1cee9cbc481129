"""E2B's wire without an SDK, against a daemon that is already running: E2B_API_URL and E2B_API_KEY say where.

`answers.txt` has, beneath the name of each of these modules, what endpoints answer. Whatever a module hears is held against
that, and a line that nobody heard fails it; so does an answer of which `documented.txt` says that nobody hears it. That every
endpoint of the daemon is there, a test of the daemon's own table holds."""

import contextlib
import http.client
import json
import os
import pathlib
import signal
import struct
import time
import urllib.parse

import pytest

#: Nothing is asserted with it: what needs it has hung.
PATIENCE = 240
KEY = os.environ["E2B_API_KEY"]
DAEMON = urllib.parse.urlsplit(os.environ["E2B_API_URL"])


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        self.text = body.decode("utf-8", "replace")

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"{self.status} {self.text[:2000]}"


def asked(method, path, headers, body=None):
    """One request over a connection of its own."""
    line = http.client.HTTPConnection(DAEMON.hostname, DAEMON.port, timeout=PATIENCE)
    try:
        try:
            line.request(method, path, body=body, headers=headers)
        except (BrokenPipeError, ConnectionResetError):
            # Answered before everything was sent.
            pass
        answer = line.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        line.close()


def frame(message, flags=0):
    body = json.dumps(message).encode()
    return struct.pack(">BI", flags, len(body)) + body


def frames(body):
    found = []
    while body:
        flags, length = struct.unpack(">BI", body[:5])
        found.append((flags, json.loads(body[5 : 5 + length])))
        body = body[5 + length :]
    return found


class Box:
    """A sandbox, and what its owner needs to use it."""

    def __init__(self, made):
        self.id, self.token = made["sandboxID"], made["envdAccessToken"]

    def headers(self, port=49983):
        return {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(port), "X-Access-Token": self.token}


class Wire:
    def __init__(self, lines):
        self.missing = dict.fromkeys(lines)
        self.unheard = unheard()

    def hear(self, endpoint, word, text):
        assert (endpoint, str(word)) not in self.unheard, f"documented.txt says that nobody hears it: {endpoint} {word} {text}"
        for line in list(self.missing):
            of, said, words = line
            at = 0
            fits = (of, said) == (endpoint, str(word))
            for part in words.split("…") if fits else []:
                at = text.find(part.strip(), at)
                fits = fits and at >= 0
                at = max(at, 0)
            if fits:
                del self.missing[line]

    def leave_out(self, endpoint, why):
        """What this host cannot do is not waited for, and why is said."""
        self.missing = {line: None for line in self.missing if line[0] != endpoint}
        pytest.skip(why)

    def ask(self, endpoint, *parts, query=None, json_body=None, body=None, headers=None, key=KEY):
        """A request to an endpoint, the parts of whose path in braces are filled in order."""
        method, path = endpoint.split()
        for part in parts:
            before, _, rest = path.partition("{")
            path = before + urllib.parse.quote(part, safe="") + rest.partition("}")[2]
        if query:
            path += "?" + urllib.parse.urlencode(query)
        headers = dict(headers or {})
        if key:
            headers["X-API-KEY"] = key
        if json_body is not None:
            headers.setdefault("Content-Type", "application/json")
            body = json.dumps(json_body).encode()
        answer = asked(method, path, headers, body)
        self.hear(endpoint, answer.status, answer.text)
        if answer.status >= 400 and path.split("/")[1] in ("sandboxes", "v2", "v3", "templates", "volumes", "secrets", "snapshots"):
            assert answer.json["code"] == answer.status, answer
            assert answer.headers["Should-Retry"] == "false", answer
        return answer

    def inside(self, box, endpoint, *parts, headers=None, port=49983, **more):
        return self.ask(endpoint, *parts, headers={**box.headers(port), **(headers or {})}, key=None, **more)

    def call(self, box, procedure, message, headers=None):
        """A unary call: the word for how it went, and the message."""
        headers = {**box.headers(), "Content-Type": "application/json", **(headers or {})}
        answer = asked("POST", f"/{procedure}", headers, json.dumps(message).encode())
        said = answer.json
        word = "ok" if answer.status == 200 else said["code"]
        assert (answer.status == 200) == ("code" not in said), answer
        self.hear(f"POST /{procedure}", word, answer.text)
        return word, said

    def stream(self, box, procedure, *messages, headers=None):
        """A stream: the word for how it ended, and the messages."""
        headers = {**box.headers(), "Content-Type": "application/connect+json", **(headers or {})}
        answer = asked("POST", f"/{procedure}", headers, b"".join(frame(message) for message in messages))
        assert answer.status == 200, answer
        *all_, (flags, last) = frames(answer.body)
        assert flags == 2 and all(flags == 0 for flags, _ in all_), answer
        word = last.get("error", {}).get("code", "ok")
        self.hear(f"POST /{procedure}", word, answer.text)
        return word, [message for _, message in all_]

    def who_is_let_in(self, box, procedures):
        """Nobody without its token, and to one that is gone nobody at all."""
        gone = Box({"sandboxID": "a" * 20, "envdAccessToken": "x"})
        for procedure in procedures:
            for kind in "application/json", "application/connect+json":
                headers = {"Content-Type": kind, "X-Access-Token": "wrong"}
                assert self.inside(box, f"POST /{procedure}", headers=headers, body=b"{}").status == 401, procedure
                said = self.inside(gone, f"POST /{procedure}", headers={"Content-Type": kind}, body=b"{}")
                assert said.status == 502 and said.json["sandboxId"] == gone.id, said

    def make(self, **more):
        answer = asked(
            "POST",
            "/v2/sandboxes",
            {"X-API-KEY": KEY, "Content-Type": "application/json"},
            json.dumps({"templateID": "base", "timeout": 600, **more}).encode(),
        )
        assert answer.status == 201, answer
        return Box(answer.json)

    def end(self, box):
        asked("DELETE", f"/sandboxes/{box.id}", {"X-API-KEY": KEY})


def lines_of(name):
    text = pathlib.Path(__file__).with_name("answers.txt").read_text(encoding="utf-8")
    beneath, found = None, []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            beneath = line.strip("[]")
        elif line and not line.startswith("#") and beneath == name:
            method, path, word, *words = line.split(maxsplit=3)
            found.append((f"{method} {path}", word, " ".join(words)))
    assert found, f"answers.txt says nothing of {name}"
    return found


def unheard():
    """Answers of which it is said why nobody hears them."""
    text = pathlib.Path(__file__).with_name("documented.txt").read_text(encoding="utf-8")
    endpoint, found = None, set()
    for line in text.splitlines():
        if line.startswith("  "):
            found.add((endpoint, line.split()[0]))
        else:
            endpoint = " ".join(line.split()[:2])
    return found


@contextlib.contextmanager
def crowded():
    """A sandbox of another tenant, all of whose connections are taken."""
    key, most = os.environ["E2B_OTHER_KEY"], int(os.environ["E2B_CONNECTIONS"])
    lines = [http.client.HTTPConnection(DAEMON.hostname, DAEMON.port, timeout=PATIENCE) for _ in range(most)]

    def ask(line, method, path, body=None):
        line.request(method, path, body=body, headers={"X-API-KEY": key, "Content-Type": "application/json"})
        answer = line.getresponse()
        return Answer(answer.status, answer.headers, answer.read())

    made = None
    try:
        for line in lines:
            # Whoever had a place before may just be leaving.
            until(lambda: ask(line, "GET", "/v2/sandboxes").status == 200)
        made = ask(lines[0], "POST", "/v2/sandboxes", json.dumps({"templateID": "base", "timeout": 600}))
        assert made.status == 201, made
        yield Box(made.json)
    finally:
        if made:
            ask(lines[0], "DELETE", f"/sandboxes/{made.json['sandboxID']}")
        for line in lines:
            line.close()


def status_of(pid):
    """What the kernel says of a process; nothing of one that is gone."""
    try:
        text = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def wardens():
    """Those of the daemon. There is one, but for a moment in which it is replaced."""

    def is_the_daemons(pid):
        while pid > 1 and str(pid) != os.environ["BLASTBOX_DAEMON"]:
            pid = int(status_of(pid).get("PPid", 0))
        return pid > 1

    named = [pid for pid in processes() if status_of(pid).get("Name", "").startswith("blastbox-warde")]
    found = [pid for pid in named if is_the_daemons(pid)]
    assert found, named
    return found


@contextlib.contextmanager
def stopped(pids):
    """These stand still meanwhile."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def wire(request):
    name = request.module.__name__.removeprefix("test_")
    wire = Wire(lines_of(name))
    yield wire
    if not request.session.testsfailed and wire.missing:
        missing = "\n".join(" ".join(line) for line in wire.missing)
        pytest.fail(f"nobody has heard, of what answers.txt says:\n{missing}")


@pytest.fixture(scope="module")
def box(wire):
    made = wire.make(envVars={"SAID": "by its owner"})
    yield made
    wire.end(made)


def until(found):
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        answer = found()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"it never came: {found}")
