"""Volumes: directories that sandboxes write to and that outlive them, with E2B's own SDK, synchronous and asynchronous."""

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
import uuid

import pytest
from e2b import AsyncSandbox, AsyncVolume, CommandExitException, Sandbox, SandboxException, Volume
from e2b.exceptions import VolumeException, VolumeNotFoundException, VolumePathNotFoundException

PATIENCE = 60


def ask(method, path, body=None, headers=None):
    headers = headers or {"X-API-KEY": os.environ["E2B_API_KEY"]}
    body = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(os.environ["E2B_API_URL"] + path, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as no:
        return no.code, json.loads(no.read())


def name():
    return "v-" + uuid.uuid4().hex[:12]


def ended(sandbox):
    begun = time.monotonic()
    while sandbox.is_running():
        assert time.monotonic() - begun < PATIENCE
        time.sleep(0.2)


@pytest.fixture
def volume():
    volume = Volume.create(name())
    yield volume
    Volume.destroy(volume.volume_id)


def test_a_volume_is_made_listed_found_and_destroyed():
    called = name()
    volume = Volume.create(called)
    assert volume.name == called and volume.token
    assert (volume.volume_id, called) in [(one.volume_id, one.name) for one in Volume.list()]
    assert Volume.connect(volume.volume_id).name == called
    info = Volume.get_info(volume.volume_id)
    assert (info.name, info.token) == (called, volume.token)
    with pytest.raises(VolumeException, match="409"):
        Volume.create(called)
    assert Volume.destroy(volume.volume_id) is True
    assert Volume.destroy(volume.volume_id) is False
    with pytest.raises(VolumeNotFoundException):
        Volume.get_info(volume.volume_id)
    for bad in ("", "a b", "a/b", "../x", "x" * 200):
        with pytest.raises(VolumeException, match="400"):
            Volume.create(bad)


def test_what_one_sandbox_wrote_the_next_one_reads(volume):
    with Sandbox.create(timeout=120, volume_mounts={"/mnt/data": volume}) as first:
        first.commands.run("mkdir /mnt/data/deep && echo kept > /mnt/data/deep/a.txt && chmod 700 /mnt/data/deep")
        owner = first.commands.run("stat -c '%U %G' /mnt/data /mnt/data/deep/a.txt").stdout.split()
        assert set(owner) == {"user"}, owner
        assert first.get_info().volume_mounts == [{"name": volume.name, "path": "/mnt/data"}]
        # Both at once see the same.
        with Sandbox.create(timeout=120, volume_mounts={"/mnt/other": volume.name}) as second:
            assert second.commands.run("cat /mnt/other/deep/a.txt").stdout == "kept\n"
            second.files.write("/mnt/other/deep/b.txt", "from the other")
            assert first.files.read("/mnt/data/deep/b.txt") == "from the other"
    with Sandbox.create(timeout=120) as without:
        assert without.commands.run("ls /mnt 2>/dev/null | wc -l").stdout.strip() == "0"
    assert volume.read_file("/deep/a.txt") == "kept\n"


def test_a_volume_with_a_sandbox_is_not_destroyed(volume):
    sandbox = Sandbox.create(timeout=120, volume_mounts={"/mnt/v": volume})
    status, no = ask("DELETE", f"/volumes/{volume.volume_id}")
    assert (status, no["error_code"]) == (409, "volume_in_use")
    sandbox.commands.run("echo still > /mnt/v/there")
    sandbox.kill()
    assert Volume.destroy(volume.volume_id) is True


def test_the_content_api(volume):
    made = volume.make_dir("/a/b", force=True)
    assert (made.path, made.name, made.type.value) == ("/a/b", "b", "directory")
    with pytest.raises(VolumePathNotFoundException):
        volume.make_dir("/none/there")
    wrote = volume.write_file("/a/b/c.txt", "one\n", mode=0o600)
    assert (wrote.size, wrote.mode & 0o777, wrote.uid, wrote.gid) == (4, 0o600, 1000, 1000)
    assert volume.write_file("/a/b/c.txt", "two").size == 3
    with pytest.raises(VolumeException, match="409"):
        volume.write_file("/a/b/c.txt", "three", force=False)
    assert volume.read_file("/a/b/c.txt") == "two"
    big = os.urandom(3 << 20)
    volume.write_file("/big", big)
    assert volume.read_file("/big", format="bytes") == big
    assert b"".join(volume.read_file("/big", format="stream")) == big
    assert [entry.path for entry in volume.list("/")] == ["/a", "/big"]
    assert [entry.path for entry in volume.list("/", depth=3)] == ["/a", "/a/b", "/a/b/c.txt", "/big"]
    assert volume.update_metadata("/a/b/c.txt", mode=0o644).mode & 0o777 == 0o644
    with pytest.raises(VolumeException, match="400.*uid"):
        volume.update_metadata("/a/b/c.txt", uid=0)
    assert volume.exists("/a/b/c.txt") and not volume.exists("/a/b/d.txt")
    volume.remove("/a")
    assert not volume.exists("/a")
    for call in (volume.read_file, volume.remove, volume.list, volume.get_info):
        with pytest.raises(VolumePathNotFoundException):
            call("/a")
    with pytest.raises(VolumeException, match="400"):
        volume.read_file("/../../etc/passwd")
    with pytest.raises(VolumeException, match="507"):
        volume.write_file("/huge", b"0" * (17 << 20))


def test_what_was_written_from_outside_is_the_users_inside(volume):
    volume.make_dir("/d")
    volume.write_file("/d/f", "out")
    with Sandbox.create(timeout=120, volume_mounts={"/mnt/v": volume}) as sandbox:
        assert sandbox.commands.run("cat /mnt/v/d/f && echo in > /mnt/v/d/f && rm -r /mnt/v/d && ls /mnt/v").stdout == "out"


def test_a_wrong_token_opens_nothing(volume):
    other = Volume.create(name())
    try:
        for token in ("", "Bearer x", f"Bearer {other.token}"):
            path = f"/volumecontent/{volume.volume_id}/dir?path=/"
            status, no = ask("GET", path, headers={"Authorization": token})
            assert (status, no["code"]) == (401, "unauthorized")
    finally:
        Volume.destroy(other.volume_id)


def test_links_in_a_volume_lead_nowhere_from_outside(volume):
    with Sandbox.create(timeout=120, volume_mounts={"/mnt/v": volume}) as sandbox:
        sandbox.commands.run(
            "cd /mnt/v && ln -s /etc/passwd file && ln -s / root && ln -s .. up && chmod 4755 . 2>/dev/null; "
            "cp /bin/true program && chmod 6755 program"
        )
        assert volume.get_info("/file").target == "/etc/passwd"
        for path in ("/file", "/root/etc/passwd", "/up/.blastbox-volumes"):
            with pytest.raises(VolumePathNotFoundException):
                volume.read_file(path)
        with pytest.raises(VolumePathNotFoundException):
            volume.write_file("/up/planted", "x")
        # Neither sockets nor pipes nor devices go from one sandbox to another.
        for made in ("mkfifo /mnt/v/p", "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('/mnt/v/s')\"",
                     "mknod /mnt/v/d c 1 3"):
            with pytest.raises(CommandExitException):
                sandbox.commands.run(made)
        begun = time.monotonic()
        while volume.get_info("/program").mode & 0o6000:
            assert time.monotonic() - begun < PATIENCE
            time.sleep(0.2)
        options = sandbox.commands.run("grep ' /mnt/v ' /proc/self/mounts").stdout
        assert "nosuid" in options and "nodev" in options, options
        with pytest.raises(CommandExitException):
            sandbox.commands.run("touch /mnt/beside")
    volume.remove("/")
    assert volume.list("/") == []


def test_what_cannot_be_mounted_is_refused_by_name(volume):
    for mounts, words in (
        ({"/mnt/v": "no-such-volume"}, "no-such-volume.*not found"),
        ({"/usr/lib": volume}, "/mnt/NAME"),
        ({"/home/user/v": volume}, "/mnt/NAME"),
        ({"/mnt/a/b": volume}, "/mnt/NAME"),
        ({"/mnt/..": volume}, "/mnt/NAME"),
        ({f"/mnt/{n}": volume for n in range(5)}, "at most 4"),
    ):
        with pytest.raises(SandboxException, match=f"400.*{words}"):
            Sandbox.create(timeout=60, volume_mounts=mounts)
    assert Volume.destroy(volume.volume_id) is True


def test_a_volume_that_outgrows_its_limit_ends_its_sandboxes(volume):
    sandbox = Sandbox.create(timeout=120, volume_mounts={"/mnt/v": volume})
    sandbox.commands.run("head -c 20000000 /dev/zero > /mnt/v/much", background=True)
    ended(sandbox)
    with pytest.raises(SandboxException, match="507.*full"):
        Sandbox.create(timeout=60, volume_mounts={"/mnt/v": volume})
    volume.remove("/much")
    Sandbox.create(timeout=60, volume_mounts={"/mnt/v": volume}).kill()


def test_a_directory_that_its_sandbox_has_closed_is_measured_all_the_same(volume):
    sandbox = Sandbox.create(timeout=120, volume_mounts={"/mnt/v": volume})
    sandbox.commands.run(
        "cd /mnt/v && mkdir d && exec 3> d/much && chmod 400 d && chmod 0 . && head -c 20000000 /dev/zero >&3; sleep 100",
        background=True,
    )
    ended(sandbox)
    volume.remove("/")
    assert volume.list("/") == []


def test_a_volume_that_cannot_be_measured_ends_its_sandboxes_and_no_others(volume):
    place = os.path.join(os.environ["BLASTBOX_STATE"], "e2b", "volumes", volume.volume_id)
    other = Volume.create(name())
    try:
        with Sandbox.create(timeout=120, volume_mounts={"/mnt/v": other}) as neighbour:
            sandbox = Sandbox.create(timeout=120, volume_mounts={"/mnt/v": volume})
            sandbox.commands.run("echo kept > /mnt/v/there")
            os.rename(place, place + "-away")
            try:
                ended(sandbox)
            finally:
                os.rename(place + "-away", place)
            assert neighbour.commands.run("echo still > /mnt/v/there; cat /mnt/v/there").stdout == "still\n"
        with Sandbox.create(timeout=120, volume_mounts={"/mnt/v": volume}) as after:
            assert after.commands.run("cat /mnt/v/there").stdout == "kept\n"
    finally:
        Volume.destroy(other.volume_id)


def test_a_key_has_so_many_volumes():
    made = []
    try:
        with pytest.raises(Exception, match="at most 6 volumes"):
            for _ in range(7):
                made.append(Volume.create(name()))
    finally:
        for volume in made:
            Volume.destroy(volume.volume_id)


def test_the_same_without_waiting():
    async def all_of_it():
        volume = await AsyncVolume.create(name())
        try:
            await volume.write_file("/in", "asked")
            sandbox = await AsyncSandbox.create(timeout=120, volume_mounts={"/mnt/v": volume})
            try:
                assert (await sandbox.commands.run("cat /mnt/v/in; echo done > /mnt/v/out")).stdout == "asked"
            finally:
                await sandbox.kill()
            assert await volume.read_file("/out") == "done\n"
            assert [entry.path for entry in await volume.list("/")] == ["/in", "/out"]
        finally:
            assert await AsyncVolume.destroy(volume.volume_id)

    asyncio.run(all_of_it())
