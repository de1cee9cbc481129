"""Agents of published frameworks, unmodified, whose code runs in sandboxes of a daemon that is already running: E2B_API_URL,
E2B_SANDBOX_URL and E2B_API_KEY say where. What a model would say is a script: nothing but the daemon is asked."""

import json
import os
import sys
import tempfile

import pytest

#: A model's vendor, or whoever collects traces, must not even be tried. (Whoever runs the tests may have keys of theirs.)
for name in [name for name in os.environ if name.startswith(("OPENAI_", "LANGSMITH_", "LANGCHAIN_", "HF_"))]:
    del os.environ[name]
os.environ["HF_HUB_OFFLINE"] = "1"

LOOPBACK = ("127.0.0.1", "::1", "localhost", None)
#: What sends to an address, which is the second word of each; and what looks up a name, which is the first.
SENDS = ("socket.connect", "socket.sendto", "socket.sendmsg")
LOOKS_UP = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")


def only_loopback(event, words):
    """Fails what would leave this machine."""
    if event in SENDS and isinstance(words[1], tuple) and words[1][0] not in LOOPBACK:
        raise PermissionError(f"a test may not send to {words[1]}")
    if event in LOOKS_UP and words[0] not in (*LOOPBACK, b"localhost", b"127.0.0.1"):
        raise PermissionError(f"a test may not look up {words[0]!r}")
    if event == "socket.getnameinfo" and words[0][0] not in LOOPBACK:
        raise PermissionError(f"a test may not ask for the name of {words[0]!r}")


sys.addaudithook(only_loopback)

KINDS = ["mnt", "pid", "net", "ipc", "uts", "user"]

#: Code for Python that says in JSON where it runs: its namespaces, and whether it sees the file that `SECRET` names.
WHERE = f"""import json, os
where = {{kind: os.readlink('/proc/self/ns/' + kind) for kind in {KINDS}}}
where['sees'] = os.path.exists(SECRET)
where['home'] = os.path.expanduser('~')
"""


class Host:
    """What is only on the host, and how to tell whether something ran there."""

    def __init__(self):
        # Not in a directory of the user's own: what hides it from the box must be the box.
        made, self.secret = tempfile.mkstemp(prefix="only-on-the-host-")
        os.write(made, b"the host's")
        os.fchmod(made, 0o644)
        os.close(made)
        self.where = WHERE.replace("SECRET", repr(self.secret))
        self.command = f"python3 - <<'END'\n{self.where}print(json.dumps(where))\nEND"

    def is_elsewhere(self, where):
        """Asserts that this was said in a box: no namespace is the host's, and the host's file is not there."""
        where = json.loads(where) if isinstance(where, str) else where
        assert os.path.exists(self.secret) and where["sees"] is False
        assert where["home"] == "/home/user"
        for kind in KINDS:
            assert where[kind].startswith(f"{kind}:[") and where[kind] != os.readlink(f"/proc/self/ns/{kind}"), where


@pytest.fixture
def host():
    host = Host()
    yield host
    os.unlink(host.secret)
