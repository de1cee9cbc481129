"""process.Process: commands, their input, their ends, terminals."""

import threading

import pytest
from conftest import until
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    PtySize,
    Sandbox,
    SandboxNotRunningException,
    TimeoutException,
)


def test_output_exit_code_and_order(shared):
    done = shared.commands.run("echo out; echo err >&2; printf 'é\\xff'")
    assert done.exit_code == 0 and done.stderr == "err\n"
    assert done.stdout.startswith("out\né")
    heard = []
    shared.commands.run("for i in 1 2 3; do echo $i; done", on_stdout=heard.append)
    assert "".join(heard) == "1\n2\n3\n"
    with pytest.raises(CommandExitException) as failed:
        shared.commands.run("echo why >&2; exit 7")
    assert failed.value.exit_code == 7 and failed.value.stderr == "why\n"
    with pytest.raises(CommandExitException) as killed:
        shared.commands.run("kill -TERM $$")
    assert killed.value.exit_code == -1


def test_much_output_arrives_whole(shared):
    done = shared.commands.run("seq 1 200000")
    assert done.stdout == "".join(f"{number}\n" for number in range(1, 200001))


def test_the_environment_is_built_from_nothing(shared):
    said = shared.commands.run("env", envs={"ASKED": "for this", "SHARED": "changed"}).stdout
    variables = dict(line.split("=", 1) for line in said.splitlines())
    assert variables["ASKED"] == "for this" and variables["SHARED"] == "changed"
    assert variables["E2B_SANDBOX"] == "true" and variables["E2B_SANDBOX_ID"] == shared.sandbox_id
    assert variables["E2B_TEMPLATE_ID"] == "base"
    assert variables["HOME"] == "/home/user" and variables["USER"] == variables["LOGNAME"] == "user"
    assert shared.commands.run("echo $SHARED").stdout == "from the sandbox\n"
    assert not set(variables) - {
        "ASKED", "SHARED", "E2B_SANDBOX", "E2B_SANDBOX_ID", "E2B_TEMPLATE_ID",
        "HOME", "USER", "LOGNAME", "PATH", "PWD", "OLDPWD", "SHLVL", "_",
    }


def test_where_a_command_starts(shared):
    assert shared.commands.run("pwd").stdout == "/home/user\n"
    assert shared.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    shared.files.make_dir("place")
    assert shared.commands.run("pwd", cwd="place").stdout == "/home/user/place\n"
    assert shared.commands.run("pwd", cwd="~/place").stdout == "/home/user/place\n"
    with pytest.raises(InvalidArgumentException, match="cwd '/no/such' does not exist"):
        shared.commands.run("pwd", cwd="/no/such")
    with pytest.raises(InvalidArgumentException):
        shared.commands.run("pwd", cwd="~root")


def test_users(shared):
    assert shared.commands.run("id -un; id -u", user="user").stdout == "user\n1000\n"
    with pytest.raises(AuthenticationException, match="invalid username: 'nobody-there'"):
        shared.commands.run("id", user="nobody-there")


def test_a_command_line_that_no_kernel_takes(shared):
    with pytest.raises(InvalidArgumentException, match="argument list too long"):
        shared.commands.run("echo " + "x" * 1_000_000)
    assert len(shared.commands.run("echo " + "x" * 100_000).stdout) == 100_001


def test_input(shared):
    cat = shared.commands.run("cat", background=True, stdin=True)
    shared.commands.send_stdin(cat.pid, "one\n")
    shared.commands.stream_input(cat.pid, ["two\n", b"three\n"])
    shared.commands.close_stdin(cat.pid)
    assert cat.wait().stdout == "one\ntwo\nthree\n"
    stays = shared.commands.run("cat; sleep 1000", background=True, stdin=True)
    shared.commands.close_stdin(stays.pid)
    shared.commands.close_stdin(stays.pid)
    with pytest.raises(Exception, match="stdin"):
        shared.commands.send_stdin(stays.pid, "too late")
    stays.kill()
    # Without input there is an end to it from the start.
    assert shared.commands.run("cat").stdout == ""
    deaf = shared.commands.run("sleep 1000", background=True)
    with pytest.raises(Exception, match="stdin"):
        shared.commands.send_stdin(deaf.pid, "x")
    deaf.kill()


def test_list_kill_and_connect(shared):
    sleeper = shared.commands.run("echo ready; exec sleep 1000", background=True, cwd="/tmp", envs={"A": "b"})
    listed = [process for process in shared.commands.list() if process.pid == sleeper.pid]
    assert len(listed) == 1
    assert listed[0].cmd == "/bin/bash" and listed[0].args[:2] == ["-l", "-c"]
    assert listed[0].cwd == "/tmp" and listed[0].envs == {"A": "b"}
    joined = shared.commands.connect(sleeper.pid)
    assert joined.pid == sleeper.pid
    assert shared.commands.kill(sleeper.pid) is True
    for ended in (sleeper, joined):
        with pytest.raises(CommandExitException) as killed:
            ended.wait()
        assert killed.value.exit_code == -1
    until(lambda: sleeper.pid not in [process.pid for process in shared.commands.list()])
    assert shared.commands.kill(sleeper.pid) is False
    with pytest.raises(NotFoundException, match="process with pid 999999 not found"):
        shared.commands.connect(999999)


def test_a_kill_takes_the_children_too(shared):
    parent = shared.commands.run("sleep 987654 & sleep 987654 & wait", background=True)
    count = "pgrep -c -f '^sleep 987654' || true"
    until(lambda: shared.commands.run(count).stdout.strip() == "2")
    parent.kill()
    until(lambda: shared.commands.run(count).stdout.strip() == "0")


def test_a_command_that_takes_too_long_is_killed(shared):
    with pytest.raises(TimeoutException):
        shared.commands.run("sleep 456789", timeout=1)
    until(lambda: shared.commands.run("pgrep -c -f '^sleep 456789' || true").stdout.strip() == "0")


def test_a_client_that_goes_away_leaves_its_command_running(shared):
    handle = shared.commands.run("sleep 1000", background=True)
    handle.disconnect()
    assert handle.pid in [process.pid for process in shared.commands.list()]
    assert shared.commands.kill(handle.pid) is True


def test_a_terminal(shared):
    pty = shared.pty.create(PtySize(rows=24, cols=80))
    heard, asked = [], []

    def hear(data):
        heard.append(data)
        # Before its prompt bash reads the size and writes it back: whoever came in between would lose his.
        if not asked and b"$ " in b"".join(heard):
            asked.append(True)
            shared.pty.resize(pty.pid, PtySize(rows=33, cols=111))
            shared.pty.send_stdin(pty.pid, b"stty size; echo \"[$TERM]\"; exit 3\n")

    with pytest.raises(CommandExitException) as ended:
        pty.wait(on_pty=hear)
    text = b"".join(heard).decode(errors="replace")
    assert ended.value.exit_code == 3
    assert "33 111" in text and "[xterm-256color]" in text


def test_a_terminal_is_killed(shared):
    pty = shared.pty.create(PtySize(rows=24, cols=80), cwd="/tmp")
    assert shared.pty.kill(pty.pid) is True
    with pytest.raises(CommandExitException):
        pty.wait()


def test_a_sandbox_that_is_killed_cuts_its_streams_off():
    box = Sandbox.create(timeout=600)
    handle = box.commands.run("echo ready; sleep 1000", background=True)
    ready = threading.Event()
    threading.Thread(target=lambda: (ready.wait(), box.kill()), daemon=True).start()
    with pytest.raises(SandboxNotRunningException):
        handle.wait(on_stdout=lambda _: ready.set())
