"""E2B's wire without an SDK, against a daemon that is already running: E2B_API_URL and E2B_API_KEY say where.

`answers.txt` has, beneath the name of each of these modules, what endpoints answer. Whatever a module hears is held against
that, and a line that nobody heard fails it. That every endpoint of the daemon is there, a test of the daemon's own table holds."""

import http.client
import json
import os
import pathlib
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

    def hear(self, endpoint, word, text):
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
