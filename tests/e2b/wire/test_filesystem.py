"""filesystem.Filesystem: every method, every word for what went wrong."""

import base64
import http.client
import json

from conftest import DAEMON, PATIENCE, frame, until

FILES = "filesystem.Filesystem/"
WHO = {"Authorization": "Basic " + base64.b64encode(b"who:").decode()}


def write(wire, box, path, body=b"x"):
    headers = {"Content-Type": "application/octet-stream"}
    assert wire.inside(box, "POST /files", query={"path": path}, headers=headers, body=body).status == 200


def test_entries(wire, box):
    made = wire.call(box, FILES + "MakeDir", {"path": "f/deep"})[1]["entry"]
    assert made["path"] == "/home/user/f/deep" and made["type"] == "FILE_TYPE_DIRECTORY" and made["permissions"] == "drwxr-xr-x", made
    assert wire.call(box, FILES + "MakeDir", {"path": "f/deep"})[0] == "already_exists"
    write(wire, box, "f/file")
    assert wire.call(box, FILES + "MakeDir", {"path": "f/file"})[0] == "invalid_argument"
    assert wire.call(box, FILES + "MakeDir", {"path": "~other/x"})[0] == "invalid_argument"
    assert wire.call(box, FILES + "MakeDir", {"path": "/etc/x"})[0] == "permission_denied"
    entry = wire.call(box, FILES + "Stat", {"path": "f/file"})[1]["entry"]
    assert (entry["size"], entry["owner"], entry["name"]) == ("1", "user", "file") and "isSymlink" not in entry, entry
    assert wire.call(box, FILES + "Stat", {"path": "f/none"})[0] == "not_found"
    assert wire.call(box, FILES + "Stat", {"path": "~other"})[0] == "invalid_argument"
    moved = wire.call(box, FILES + "Move", {"source": "f/file", "destination": "f/new/file"})[1]["entry"]
    assert moved["path"] == "/home/user/f/new/file"
    assert wire.call(box, FILES + "Move", {"source": "f/file", "destination": "f/x"})[0] == "not_found"
    assert wire.call(box, FILES + "Move", {"source": "~other/x", "destination": "f/x"})[0] == "invalid_argument"
    listed = wire.call(box, FILES + "ListDir", {"path": "f", "depth": 2})[1]["entries"]
    assert [one["path"] for one in listed] == ["/home/user/f/deep", "/home/user/f/new", "/home/user/f/new/file"], listed
    assert wire.call(box, FILES + "ListDir", {"path": "f/none"})[0] == "not_found"
    assert wire.call(box, FILES + "ListDir", {"path": "f/new/file"})[0] == "invalid_argument"
    loop = {"process": {"cmd": "/bin/ln", "args": ["-s", "loop", "f/loop"]}, "stdin": False}
    assert wire.stream(box, "process.Process/Start", loop)[0] == "ok"
    assert wire.call(box, FILES + "ListDir", {"path": "f/loop"})[0] == "failed_precondition"
    assert wire.call(box, FILES + "Remove", {"path": "f"})[0] == "ok"
    assert wire.call(box, FILES + "Remove", {"path": "f"})[0] == "ok"
    assert wire.call(box, FILES + "Remove", {"path": "/etc/passwd"})[0] == "permission_denied"
    for procedure in "Stat", "MakeDir", "Remove", "ListDir", "CreateWatcher":
        assert wire.call(box, FILES + procedure, {"path": "x"}, headers=WHO)[0] == "unauthenticated", procedure
    assert wire.call(box, FILES + "Move", {"source": "x", "destination": "y"}, headers=WHO)[0] == "unauthenticated"
    for procedure in "GetWatcherEvents", "RemoveWatcher":
        assert wire.call(box, FILES + procedure, {"watcherId": "x"}, headers=WHO)[0] == "unauthenticated", procedure
    assert wire.stream(box, FILES + "WatchDir", {"path": "x"}, headers=WHO)[0] == "unauthenticated"


def test_watchers(wire, box):
    wire.call(box, FILES + "MakeDir", {"path": "w"})
    write(wire, box, "plain")
    made = wire.call(box, FILES + "CreateWatcher", {"path": "w", "recursive": True})[1]["watcherId"]
    write(wire, box, "w/new")
    events = []

    def seen():
        events.extend(wire.call(box, FILES + "GetWatcherEvents", {"watcherId": made})[1].get("events", []))
        return any(event["name"] == "new" and event["type"] == "EVENT_TYPE_CREATE" for event in events)

    until(seen)
    assert wire.call(box, FILES + "RemoveWatcher", {"watcherId": made})[0] == "ok"
    for procedure in "GetWatcherEvents", "RemoveWatcher":
        assert wire.call(box, FILES + procedure, {"watcherId": made})[0] == "not_found"
    assert wire.call(box, FILES + "CreateWatcher", {"path": "none"})[0] == "not_found"
    assert wire.call(box, FILES + "CreateWatcher", {"path": "plain"})[0] == "invalid_argument"
    assert wire.stream(box, FILES + "WatchDir", {"path": "none"})[0] == "not_found"
    assert wire.stream(box, FILES + "WatchDir", {"path": "plain"})[0] == "invalid_argument"
    word, events = wire.stream(box, FILES + "WatchDir", {"path": "w"}, headers={"Connect-Timeout-Ms": "200"})
    assert word == "deadline_exceeded" and events[:1] in ([], [{"start": {}}]), events

    # One that goes on tells what happens while it does.
    headers = {**box.headers(), "Content-Type": "application/connect+json", "Keepalive-Ping-Interval": "1"}
    line = http.client.HTTPConnection(DAEMON.hostname, DAEMON.port, timeout=PATIENCE)
    line.request("POST", f"/{FILES}WatchDir", frame({"path": "w", "includeEntry": True}), headers)
    answer = line.getresponse()
    read = lambda: json.loads(answer.read(int.from_bytes(answer.read(5)[1:], "big")))
    assert read() == {"start": {}}
    write(wire, box, "w/other", b"12")
    told = until(lambda: (event := read().get("filesystem", {})).get("name") == "other" and event)
    assert told["type"] == "EVENT_TYPE_CREATE", told
    until(lambda: "keepalive" in read())
    wire.hear(f"POST /{FILES}WatchDir", "ok", "")
    line.close()


def test_who_is_let_in(wire, box):
    wire.who_is_let_in(box, [FILES + name for name in "Stat MakeDir Move ListDir Remove WatchDir CreateWatcher GetWatcherEvents RemoveWatcher".split()])
