"""Snapshots and forks through E2B's published SDK, of a template whose sandboxes are virtual machines (`machine`)."""

import asyncio
import os
import time

import httpx
import pytest
from e2b import AsyncSandbox, AuthenticationException, NotFoundException, Sandbox, SandboxException, Template

OTHER = os.environ["E2B_OTHER_KEY"]
SNAPSHOTS = os.environ["E2B_SNAPSHOTS"]
#: Nothing is asserted with it: what needs it has hung. Machines may be emulated.
PATIENCE = 240
COUNT = "n=0; while :; do n=$((n + 1)); echo $n > /tmp/new; cat /tmp/new > /tmp/count; sleep 1; done"


def until(found):
    """Asks again and again until there is an answer."""
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        answer = found()
        if answer:
            return answer
        time.sleep(0.2)
    raise AssertionError("it never came")


def counted(box, more_than=0):
    """The number that the command in a sandbox has come to."""

    def number():
        try:
            text = box.files.read("/tmp/count").strip()
        except httpx.RemoteProtocolError:
            # Emptied by its writer between the word of how long it is and its bytes.
            return None
        return int(text) if text and int(text) > more_than else None

    return until(number)


@pytest.fixture(scope="module")
def source():
    box = Sandbox.create("machine", timeout=900, envs={"FROM": "source"}, metadata={"kind": "test"}, request_timeout=PATIENCE)
    box.files.write("/home/user/kept", "kept\n")
    box.files.write("/tmp/count", "0")
    box.commands.run(COUNT, background=True, timeout=0)
    counted(box)
    yield box
    box.kill()


def all_of(pages):
    found = []
    while pages.has_next:
        found += pages.next_items()
    return found


def test_what_may_be_a_machine_is_one_although_a_jail_would_have_a_root():
    with Sandbox.create("either", timeout=600, request_timeout=PATIENCE) as box:
        with pytest.raises(AuthenticationException, match="invalid username: 'root'"):
            box.commands.run("id", user="root")
        # Only machines can be copied.
        [fork] = box.fork(count=1, timeout=600, request_timeout=PATIENCE)
        assert fork.commands.run("id -u").stdout == "1000\n"
        fork.kill()


def test_forks_go_on_where_their_source_is_and_each_is_its_own(source):
    before = counted(source)
    [runs] = source.commands.list()
    one, two = source.fork(count=2, timeout=600, request_timeout=PATIENCE)
    assert len({source.sandbox_id, one.sandbox_id, two.sandbox_id}) == 3
    for fork in (one, two):
        assert fork.files.read("/home/user/kept") == "kept\n"
        assert fork.commands.run("echo $FROM").stdout == "source\n"
        assert counted(fork, before - 1) >= before
        # What ran is known there, by the number that it had.
        assert [process.pid for process in fork.commands.list()] == [runs.pid]
        assert fork.get_info().metadata == {"kind": "test"}
    one.files.write("/home/user/kept", "one\n")
    assert one.commands.kill(runs.pid)
    until(lambda: one.commands.list() == [])
    assert two.files.read("/home/user/kept") == source.files.read("/home/user/kept") == "kept\n"
    assert [process.pid for process in two.commands.list()] == [runs.pid]
    # Its token opens no other sandbox.
    assert len({box._envd_access_token for box in (source, one, two)}) == 3
    for box, token in ((one, two), (two, one), (one, source), (source, one)):
        headers = {"E2b-Sandbox-Id": box.sandbox_id, "E2b-Sandbox-Port": "49983"}
        url = os.environ["E2B_SANDBOX_URL"] + "/envs"
        assert httpx.get(url, headers=headers | {"X-Access-Token": box._envd_access_token}).status_code == 200
        assert httpx.get(url, headers=headers | {"X-Access-Token": token._envd_access_token}).status_code == 401
    assert one.kill() and two.kill()
    counted(source, counted(source))


def test_a_snapshot_is_kept_found_begun_with_replaced_and_deleted(source):
    first = source.create_snapshot(name="mine", request_timeout=PATIENCE)
    assert first.snapshot_id.endswith("/mine:default") and first.names == [first.snapshot_id]
    source.files.write("/home/user/later", "later\n")
    again = source.create_snapshot(name="mine", request_timeout=PATIENCE)
    assert again.snapshot_id == first.snapshot_id
    plain = source.create_snapshot(request_timeout=PATIENCE)
    assert plain.snapshot_id.endswith(":default") and plain.names == []
    listed = [snapshot.snapshot_id for snapshot in all_of(Sandbox.list_snapshots(limit=1))]
    assert listed == [plain.snapshot_id, again.snapshot_id]
    assert len(all_of(Sandbox.list_snapshots(name="mine"))) == 1
    assert len(all_of(source.list_snapshots())) == 2
    assert all_of(Sandbox.list_snapshots(sandbox_id="aaaaaaaaaaaaaaaaaaaa")) == []
    # Nobody else has it.
    assert all_of(Sandbox.list_snapshots(api_key=OTHER)) == []
    for name in (again.snapshot_id, plain.snapshot_id, "mine"):
        with pytest.raises(SandboxException, match="404: template .* not found"):
            Sandbox.create(name, api_key=OTHER)
        assert not Sandbox.delete_snapshot(name, api_key=OTHER)
    begun = Sandbox.create(again.snapshot_id, envs={"MORE": "more"}, timeout=600, request_timeout=PATIENCE)
    assert begun.commands.run("echo $FROM $MORE; cat later").stdout == "source more\nlater\n"
    assert len(begun.commands.list()) == 1
    counted(begun, counted(begun))
    with pytest.raises(SandboxException, match="leave `network` out"):
        Sandbox.create("mine", network={"allow_out": ["example.com"]})
    begun.kill()
    for snapshot in (again, plain):
        assert Sandbox.delete_snapshot(snapshot.snapshot_id)
        assert not Sandbox.delete_snapshot(snapshot.snapshot_id)
        with pytest.raises(SandboxException, match="404: template .* not found"):
            Sandbox.create(snapshot.snapshot_id)


def test_a_copy_reaches_and_shows_what_its_original_did_and_never_begins_closed_without_being_so():
    network = {"allow_out": ["example.com"], "allow_public_traffic": False}
    source = Sandbox.create("machine", network=network, timeout=600, request_timeout=PATIENCE)
    source.create_snapshot(name="reaching", request_timeout=PATIENCE)
    for closed in ({"allow_internet_access": False}, {"network": {"deny_out": ["0.0.0.0/0"]}}):
        with pytest.raises(SandboxException, match="cannot begin closed"):
            Sandbox.create("reaching", **closed)
    begun = Sandbox.create("reaching", timeout=600, request_timeout=PATIENCE)
    # Nor are its ports everybody's, unless its owner says so; each has a token of its own for them.
    [fork] = source.fork(timeout=600, request_timeout=PATIENCE)
    assert len({box.traffic_access_token for box in (source, begun, fork)} - {None}) == 3
    fork.kill()
    network = {"allow_public_traffic": True}
    opened = Sandbox.create("reaching", network=network, timeout=600, request_timeout=PATIENCE)
    assert opened.traffic_access_token is None and opened.kill()
    for box in (source, begun):
        box.pause(request_timeout=PATIENCE)
        box.connect(timeout=600, request_timeout=PATIENCE)
        assert box.commands.run("echo here").stdout == "here\n"
        box.kill()
    assert Sandbox.delete_snapshot("reaching")


def test_a_paused_sandbox_lies_on_disk_and_goes_on_as_it_was():
    box = Sandbox.create("machine", timeout=600, envs={"FROM": "paused"}, request_timeout=PATIENCE)
    box.files.write("/tmp/count", "0")
    box.commands.run(COUNT, background=True, timeout=0)
    before = counted(box)
    [runs] = box.commands.list()
    box.pause(request_timeout=PATIENCE)
    assert box.get_info().state.value == "paused"
    # Its machine is a file, which is no snapshot.
    assert [name for name in os.listdir(SNAPSHOTS) if name == f"sn_{box.sandbox_id}.snapshot"]
    assert all_of(box.list_snapshots()) == []
    again = Sandbox.connect(box.sandbox_id, timeout=600, request_timeout=PATIENCE)
    assert counted(again, before) > before
    assert again.commands.run("echo $FROM").stdout == "paused\n"
    assert [process.pid for process in again.commands.list()] == [runs.pid]
    assert again.commands.kill(runs.pid)
    assert not [name for name in os.listdir(SNAPSHOTS) if name == f"sn_{box.sandbox_id}.snapshot"]
    again.pause(request_timeout=PATIENCE)
    assert again.kill()
    with pytest.raises(NotFoundException):
        again.get_info()


def test_what_cannot_be_copied_says_which_template_can():
    box = Sandbox.create(timeout=60)
    for ask in (box.create_snapshot, box.fork):
        with pytest.raises(SandboxException, match=r"tier jail cannot be copied.*templates are: machine"):
            ask()
    box.kill()
    for ask in (box.create_snapshot, box.fork):
        with pytest.raises(NotFoundException):
            ask()


def test_names_of_others_and_snapshots_without_memory_are_refused(source):
    with pytest.raises(SandboxException, match="template of the operator"):
        source.create_snapshot(name="base")
    with pytest.raises(SandboxException, match="no name of a template"):
        source.create_snapshot(name="no name")
    with pytest.raises(SandboxException, match="with its memory"):
        source.create_snapshot(mode="filesystem")


def test_tags_of_templates_and_names_of_snapshots_are_not_mixed_up(source):
    snapshot = source.create_snapshot(name="tags", request_timeout=PATIENCE)
    with pytest.raises(Exception, match="not found"):
        Template.remove_tags("nothing", "v1")
    assert len(all_of(Sandbox.list_snapshots(name="tags"))) == 1
    assert Sandbox.delete_snapshot(snapshot.snapshot_id)


def test_the_asynchronous_sdk_forks_too(source):
    async def forked():
        box = await AsyncSandbox.connect(source.sandbox_id)
        [fork] = await box.fork(timeout=600, request_timeout=PATIENCE)
        said = (await fork.commands.run("cat kept")).stdout
        await fork.kill()
        return said

    assert asyncio.run(forked()) == "kept\n"


def test_whoever_does_not_wait_for_its_forks_leaves_none(source):
    def there():
        return {box.sandbox_id for box in all_of(Sandbox.list())}

    before = there()
    with pytest.raises(Exception):
        source.fork(count=2, timeout=600, request_timeout=0.1)

    def next_one():
        try:
            return source.fork(timeout=600, request_timeout=PATIENCE)
        except SandboxException:  # 409: it is still being copied for the one who went away
            return None

    [fork] = until(next_one)
    assert fork.kill()
    until(lambda: there() == before)
