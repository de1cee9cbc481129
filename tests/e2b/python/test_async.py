"""The same with the asynchronous SDK, whose streams are others: watching, many sandboxes at once, a killed one."""

import asyncio

import pytest
from conftest import PATIENCE
from e2b import (
    AsyncSandbox,
    CommandExitException,
    FileNotFoundException,
    FilesystemEventType,
    PtySize,
    SandboxNotRunningException,
    TimeoutException,
)


def run(body):
    """Runs a test with a sandbox of its own."""

    async def whole():
        box = await AsyncSandbox.create(timeout=600, envs={"MARK": "async"})
        try:
            await asyncio.wait_for(body(box), 4 * PATIENCE)
        finally:
            await box.kill()

    asyncio.run(whole())


def test_commands():
    async def body(box):
        done = await box.commands.run("echo $MARK; echo err >&2")
        assert (done.stdout, done.stderr, done.exit_code) == ("async\n", "err\n", 0)
        with pytest.raises(CommandExitException) as failed:
            await box.commands.run("exit 9")
        assert failed.value.exit_code == 9
        with pytest.raises(TimeoutException):
            await box.commands.run("sleep 1000", timeout=1)
        cat = await box.commands.run("cat", background=True, stdin=True)
        await box.commands.send_stdin(cat.pid, "in\n")
        await box.commands.close_stdin(cat.pid)
        assert (await cat.wait()).stdout == "in\n"
        both = await asyncio.gather(*[box.commands.run(f"echo {number}") for number in range(20)])
        assert [done.stdout for done in both] == [f"{number}\n" for number in range(20)]

    run(body)


def test_files():
    async def body(box):
        await box.files.write("a/b.txt", "hello")
        assert await box.files.read("a/b.txt") == "hello"
        assert [entry.name for entry in await box.files.list("a")] == ["b.txt"]
        with pytest.raises(FileNotFoundException):
            await box.files.read("a/none")
        stream = await box.files.read("a/b.txt", format="stream")
        assert b"".join([piece async for piece in stream]) == b"hello"

    run(body)


def test_watching_and_a_terminal():
    async def body(box):
        await box.files.make_dir("w")
        created = asyncio.Event()

        async def told(event):
            if event.type == FilesystemEventType.CREATE and event.name == "new.txt":
                created.set()

        watch = await box.files.watch_dir("w", on_event=told)
        await box.files.write("w/new.txt", "x")
        await asyncio.wait_for(created.wait(), PATIENCE)
        await watch.stop()
        heard, seen = [], asyncio.Event()

        async def print_out(data):
            heard.append(data)
            if b"42-tty" in b"".join(heard):
                seen.set()

        pty = await box.pty.create(PtySize(rows=24, cols=80), on_data=print_out)
        await box.pty.send_stdin(pty.pid, b"echo $((6*7))-tty\n")
        await asyncio.wait_for(seen.wait(), PATIENCE)
        assert await pty.kill() is True

    run(body)


def test_many_at_once():
    async def whole():
        boxes = await asyncio.gather(*[AsyncSandbox.create(timeout=600) for _ in range(12)])
        try:
            said = await asyncio.gather(*[box.commands.run("echo $E2B_SANDBOX_ID") for box in boxes])
            assert [done.stdout.strip() for done in said] == [box.sandbox_id for box in boxes]
        finally:
            assert all(await asyncio.gather(*[box.kill() for box in boxes]))

    asyncio.run(whole())


def test_a_sandbox_that_is_killed_cuts_its_streams_off():
    async def whole():
        box = await AsyncSandbox.create(timeout=600)
        handle = await box.commands.run("sleep 1000", background=True)
        waiting = asyncio.ensure_future(handle.wait())
        assert await box.kill() is True
        with pytest.raises(SandboxNotRunningException):
            await asyncio.wait_for(waiting, PATIENCE)
        assert await box.is_running() is False

    asyncio.run(whole())
