"""What a daemon answers that has trouble of its own: doors that are full, keys that it cannot read, a warden that stands still."""

import contextlib
import os
import pathlib
import threading

from conftest import Box, crowded, stopped, wardens

NEW = {"templateID": "base", "timeout": 600}
CREATE = "POST /v2/sandboxes", "POST /sandboxes"
#: What anybody with a key may ask for; `box` stands for a sandbox of its own.
OTHERS = [
    ("GET /v2/sandboxes", [], None),
    ("GET /sandboxes/{id}", ["box"], None),
    ("DELETE /sandboxes/{id}", ["box"], None),
    ("POST /sandboxes/{id}/connect", ["box"], {"timeout": 60}),
    ("POST /v2/sandboxes/{id}/connect", ["box"], {}),
    ("POST /secrets", [], {"name": "a", "value": "12345678"}),
    ("GET /secrets", [], None),
    ("GET /secrets/{id}", ["a"], None),
    ("POST /secrets/{id}", ["a"], {"value": "12345678"}),
    ("DELETE /secrets/{id}", ["a"], None),
]


def all_of_them(wire, box, status, **more):
    for endpoint, parts, body in OTHERS:
        said = wire.ask(endpoint, *[box.id if part == "box" else part for part in parts], json_body=body, **more)
        assert said.status == status, (endpoint, said)


def test_more_connections_than_a_tenant_may_have(wire):
    with crowded() as box:
        all_of_them(wire, box, 429, key=os.environ["E2B_OTHER_KEY"])
        # Others have their own.
        assert wire.ask("GET /v2/sandboxes").status == 200


def test_secrets_where_the_operator_wants_none(wire):
    headers = {"X-A": "${e2b.secrets.a}"}
    network = {"allowOut": ["a.test"], "rules": {"a.test": [{"transform": {"headers": headers}}]}}
    assert wire.ask("POST /v2/sandboxes", json_body={**NEW, "network": network}).status == 403
    for endpoint, parts, body in OTHERS[5:]:
        assert wire.ask(endpoint, *parts, json_body=body).status == 403, endpoint


@contextlib.contextmanager
def unreadable(path):
    """A file with something else in it, and then as it was."""
    was = path.read_bytes()
    path.write_bytes(b"no keys")
    try:
        yield
    finally:
        path.write_bytes(was)


def test_keys_that_cannot_be_read(wire, box):
    with unreadable(pathlib.Path(os.environ["BLASTBOX_STATE"], "keys.json")):
        for endpoint in CREATE:
            assert wire.ask(endpoint, json_body=NEW).status == 500
        all_of_them(wire, box, 500)
    assert wire.ask("GET /sandboxes/{id}", box.id).status == 200


def test_a_sandbox_that_is_not_ready_in_time(wire, box):
    said = {}

    def ask(endpoint):
        said[endpoint] = wire.ask(endpoint, json_body=NEW)

    with stopped(wardens()):
        asking = [threading.Thread(target=ask, args=[endpoint]) for endpoint in CREATE]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
    assert [said[endpoint].status for endpoint in CREATE] == [504, 504], said
    # Nothing is left of them, and the next one is made.
    assert [one["sandboxID"] for one in wire.ask("GET /v2/sandboxes").json] == [box.id]
    wire.end(Box(wire.ask("POST /v2/sandboxes", json_body=NEW).json))
