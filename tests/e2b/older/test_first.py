"""e2b 1.x: the first generation of the API, with its own paths and defaults. It asks for the whole internet by itself."""

import asyncio

import pytest
from e2b import AsyncSandbox, AuthenticationException, CommandExitException, NotFoundException, PtySize, Sandbox, TimeoutException
from e2b_code_interpreter import Sandbox as Interpreter


def test_a_sandbox_from_its_beginning_to_its_end():
    box = Sandbox(timeout=600, allow_internet_access=False, metadata={"of": "before"}, envs={"WORD": "said"})
    assert box.commands.run("echo $WORD; id -un").stdout == "said\nuser\n"
    with pytest.raises(CommandExitException) as ended:
        box.commands.run("exit 7")
    assert ended.value.exit_code == 7
    assert box.files.write("a/b.txt", "words").path == "/home/user/a/b.txt"
    assert box.files.read("a/b.txt") == "words" and box.files.exists("a/b.txt")
    assert [entry.name for entry in box.files.list("a")] == ["b.txt"]
    with pytest.raises(NotFoundException):
        box.files.read("none")
    background = box.commands.run("cat", background=True)
    box.commands.send_stdin(background.pid, "through\n")
    assert background.pid in [process.pid for process in box.commands.list()]
    assert box.commands.kill(background.pid)
    with pytest.raises(TimeoutException):
        box.commands.run("sleep 600", timeout=1)
    box.set_timeout(300)
    other = Sandbox.connect(box.sandbox_id)
    assert other.files.read("a/b.txt") == "words"
    listed = {ours.sandbox_id: ours.metadata for ours in Sandbox.list()}
    assert listed[box.sandbox_id] == {"of": "before"}
    assert box.is_running()
    box.kill()
    assert not box.is_running()


def test_a_terminal():
    box = Sandbox(timeout=600, allow_internet_access=False)
    heard = bytearray()
    terminal = box.pty.create(PtySize(24, 80))
    box.pty.send_stdin(terminal.pid, b"echo ter''minal; exit\n")
    terminal.wait(on_pty=heard.extend)
    assert b"terminal" in heard
    box.kill()


def test_the_same_asynchronously():
    async def all_of_it():
        box = await AsyncSandbox.create(timeout=600, allow_internet_access=False)
        assert (await box.commands.run("echo hello")).stdout == "hello\n"
        await box.files.write("a", b"bytes")
        assert await box.files.read("a", format="bytes") == b"bytes"
        # Its terminals send no token, and are refused: a defect of that version.
        with pytest.raises(AuthenticationException):
            await box.pty.create(PtySize(24, 80), on_data=lambda data: None)
        await box.kill()

    asyncio.run(all_of_it())


def test_code_needs_a_token_that_this_version_does_not_send():
    box = Interpreter(timeout=600, allow_internet_access=False)
    try:
        with pytest.raises(Exception, match="(?i)401|unauthorized"):
            box.run_code("1 + 1")
        assert box.commands.run("echo fine").stdout == "fine\n"
    finally:
        box.kill()
