"""The control plane: create, list, get, kill, timeout, connect, pause, resume, metrics."""

import datetime
import uuid

import pytest
from conftest import paused_or_skip, until
from e2b import (
    AuthenticationException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxQuery,
    SandboxState,
    SandboxNotRunningException,
)


def everything(**query):
    pages = Sandbox.list(query=SandboxQuery(**query))
    found = []
    while pages.has_next:
        found.extend(pages.next_items())
    return found


def test_a_sandbox_is_made_shown_and_killed():
    box = Sandbox.create(timeout=120, metadata={"suite": "one"})
    assert box.sandbox_id.isalnum() and box.sandbox_id == box.sandbox_id.lower()
    info = box.get_info()
    assert info.sandbox_id == box.sandbox_id
    assert info.template_id == "base" and info.state == SandboxState.RUNNING
    assert info.metadata == {"suite": "one"}
    assert info.cpu_count >= 1 and info.memory_mb >= 128
    assert info.allow_internet_access is None
    assert info.end_at > info.started_at
    assert box.is_running()
    assert box.kill() is True
    assert box.kill() is False
    assert box.is_running() is False
    with pytest.raises(SandboxNotFoundException):
        Sandbox.get_info(box.sandbox_id)
    with pytest.raises(SandboxNotRunningException):
        box.commands.run("true")


def test_a_list_is_filtered_paged_and_newest_first():
    mark = uuid.uuid4().hex
    note = {"suite": mark, "odd key & =": "odd välue/+ %"}
    boxes = [Sandbox.create(timeout=600, metadata=note) for _ in range(3)]
    other = Sandbox.create(timeout=600, metadata={"suite": mark})
    try:
        made = [box.sandbox_id for box in boxes]
        listed = [info.sandbox_id for info in everything(metadata=note)]
        assert sorted(listed) == sorted(made)
        times = [info.started_at for info in everything(metadata=note)]
        assert times == sorted(times, reverse=True)
        assert len(everything(metadata={"suite": mark})) == 4
        assert everything(metadata={"suite": mark, "none": "x"}) == []

        pages = Sandbox.list(query=SandboxQuery(metadata=note), limit=2)
        first = pages.next_items()
        assert len(first) == 2 and pages.has_next
        second = pages.next_items()
        assert len(second) == 1 and not pages.has_next
        assert [info.sandbox_id for info in first + second] == listed

        assert len(everything(metadata=note, state=[SandboxState.RUNNING])) == 3
        assert everything(metadata=note, state=[SandboxState.PAUSED]) == []
    finally:
        for box in [*boxes, other]:
            box.kill()


def test_a_timeout_is_set_and_connect_never_shortens_a_life():
    box = Sandbox.create(timeout=600)
    try:
        box.set_timeout(1200)
        longer = box.get_info().end_at
        Sandbox.connect(box.sandbox_id, timeout=60)
        assert box.get_info().end_at == longer
        again = Sandbox.connect(box.sandbox_id, timeout=3600)
        assert box.get_info().end_at > longer
        assert again.commands.run("echo same").stdout == "same\n"
        box.set_timeout(300)
        assert box.get_info().end_at < longer
    finally:
        box.kill()


def test_a_sandbox_ends_when_its_time_is_over():
    box = Sandbox.create(timeout=600)
    box.set_timeout(0)
    until(lambda: not box.is_running())
    with pytest.raises(SandboxNotFoundException):
        box.set_timeout(60)
    assert box.kill() is False


def test_a_paused_sandbox_keeps_its_files_and_processes():
    box = Sandbox.create(timeout=600, metadata={"suite": uuid.uuid4().hex})
    try:
        box.files.write("kept.txt", "kept")
        sleeper = box.commands.run("sleep 1000", background=True)
        assert paused_or_skip(box.pause) is True
        assert box.pause() is False
        assert box.is_running() is False
        assert box.get_info().state == SandboxState.PAUSED
        paused = everything(metadata=box.get_info().metadata, state=[SandboxState.PAUSED])
        assert [info.sandbox_id for info in paused] == [box.sandbox_id]
        with pytest.raises(SandboxNotRunningException):
            box.files.read("kept.txt")
        back = Sandbox.connect(box.sandbox_id, timeout=600)
        assert back.files.read("kept.txt") == "kept"
        assert sleeper.pid in [process.pid for process in back.commands.list()]
        assert back.is_running()
    finally:
        box.kill()


def test_a_paused_sandbox_can_be_killed():
    box = Sandbox.create(timeout=600)
    paused_or_skip(box.pause)
    assert box.kill() is True
    assert box.kill() is False


def test_traffic_wakes_a_sandbox_whose_owner_wants_that():
    box = Sandbox.create(timeout=600, lifecycle={"on_timeout": "pause", "auto_resume": True})
    try:
        paused_or_skip(box.pause)
        assert box.commands.run("echo awake").stdout == "awake\n"
        assert box.get_info().state == SandboxState.RUNNING
    finally:
        box.kill()


def test_metrics_have_every_number():
    box = Sandbox.create(timeout=600)
    try:
        box.files.write("some.bin", b"x" * 1_000_000)
        samples = until(box.get_metrics)
        last = samples[-1]
        assert last.cpu_count >= 1 and last.cpu_used_pct >= 0
        assert 0 < last.mem_used < last.mem_total
        assert 1_000_000 <= last.disk_used < last.disk_total
        long_ago = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(days=2)
        earlier = long_ago + datetime.timedelta(days=1)
        assert box.get_metrics(start=long_ago, end=earlier) == []
    finally:
        box.kill()


def test_what_is_refused_says_why():
    with pytest.raises(AuthenticationException):
        Sandbox.create(api_key="e2b_not_a_key")
    with pytest.raises(SandboxException, match="404: template 'no-such' not found; known templates: .*base"):
        Sandbox.create("no-such")
    with pytest.raises(SandboxException, match="400: allow_internet_access: true is refused"):
        Sandbox.create(allow_internet_access=True)
    with pytest.raises(SandboxException, match="400: network.allowOut is refused"):
        Sandbox.create(network={"allow_out": ["example.com"]})
    with pytest.raises(SandboxException, match="501: blastbox does not serve snapshots"):
        Sandbox.create_snapshot("abc")
    for unknown in ["abc", "a" * 20]:
        assert Sandbox.kill(unknown) is False
        with pytest.raises(SandboxNotFoundException):
            Sandbox.set_timeout(unknown, 60)
        with pytest.raises(SandboxNotFoundException):
            Sandbox.connect(unknown)


def test_the_network_is_closed_whether_that_is_said_or_not():
    box = Sandbox.create(timeout=600, allow_internet_access=False)
    try:
        assert box.get_info().allow_internet_access is False
        names = box.commands.run("ls /sys/class/net 2>/dev/null || true; cat /proc/net/dev 2>/dev/null || true").stdout
        assert "eth" not in names
        script = "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 1)\nexcept OSError as e: print(e.errno)"
        assert box.commands.run(f"python3 -c \"{script}\"").stdout.strip() == "101"
    finally:
        box.kill()
