"""Root of the box through E2B's published SDK, against a daemon of root whose operator has said nothing of it."""

import pytest
from e2b import AuthenticationException, CommandExitException, PtySize, Sandbox


@pytest.fixture(scope="module")
def box():
    sandbox = Sandbox.create(timeout=600)
    yield sandbox
    sandbox.kill()


def test_a_command_runs_as_root(box):
    said = box.commands.run("id -u; echo $HOME $USER; pwd", user="root").stdout.split("\n")
    assert said[:3] == ["0", "/root root", "/root"]
    assert box.commands.run("id -u").stdout == "1000\n"


def test_sudo_runs_a_command_as_root(box):
    assert box.commands.run("sudo id -u").stdout == "0\n"
    with pytest.raises(CommandExitException) as ended:
        box.commands.run("sudo sh -c 'exit 9'")
    assert ended.value.exit_code == 9


def test_files_of_root_are_roots(box):
    box.files.write("/tmp/of-root", "secret", user="root")
    box.commands.run("chmod 600 /tmp/of-root", user="root")
    assert box.files.read("/tmp/of-root", user="root") == "secret"
    with pytest.raises(Exception):
        box.files.read("/tmp/of-root")
    assert [entry.name for entry in box.files.list("/tmp", user="root")] == ["of-root"]
    box.files.remove("/tmp/of-root", user="root")
    assert not box.files.exists("/tmp/of-root")


def test_a_terminal_of_root(box):
    printed = []
    terminal = box.pty.create(size=PtySize(rows=24, cols=80), user="root")
    box.pty.send_stdin(terminal.pid, b"id -u; exit\n")
    terminal.wait(on_pty=printed.append)
    assert b"\r0\r\n" in b"".join(printed)


def test_others_are_still_nobody(box):
    with pytest.raises(AuthenticationException):
        box.commands.run("id", user="who")
