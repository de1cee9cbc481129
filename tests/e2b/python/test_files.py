"""/files and filesystem.Filesystem: reading, writing, listing, watching, signed addresses."""

import gzip
import json
import urllib.error
import urllib.request

import pytest
from conftest import URL, until
from e2b import (
    AuthenticationException,
    FileNotFoundException,
    FileType,
    FilesystemEventType,
    InvalidArgumentException,
    NotEnoughSpaceException,
    SandboxException,
)


def fetch(url, data=None, headers=None):
    request = urllib.request.Request(url, data=data, headers=headers or {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status, dict(answer.headers), answer.read()


def refused(url, **how):
    with pytest.raises(urllib.error.HTTPError) as error:
        fetch(url, **how)
    return error.value.code, json.loads(error.value.read())


@pytest.mark.parametrize("data", ["", "text é\n", "x" * 300_000], ids=["empty", "utf-8", "long"])
@pytest.mark.parametrize("how", [{}, {"use_octet_stream": True}, {"gzip": True}], ids=["form", "octets", "gzip"])
def test_what_is_written_is_read(shared, data, how):
    info = shared.files.write("dir with space/file.txt", data, **how)
    assert info.path == "/home/user/dir with space/file.txt" and info.name == "file.txt"
    assert shared.files.read("dir with space/file.txt") == data
    assert shared.files.read(info.path, gzip=True) == data


def test_bytes_streams_and_several_at_once(shared):
    data = bytes(range(256)) * 5000
    shared.files.write("/tmp/raw.bin", data)
    assert bytes(shared.files.read("/tmp/raw.bin", format="bytes")) == data
    assert b"".join(shared.files.read("/tmp/raw.bin", format="stream")) == data
    shared.files.write("/tmp/streamed.bin", iter([data, b"", data]))
    assert shared.commands.run("stat -c '%s %a %U' /tmp/streamed.bin").stdout == f"{2 * len(data)} 644 user\n"
    names = ["many/a \"quoted\" é.txt", "/tmp/many b.txt", "many/deep/er/c.txt"]
    written = shared.files.write_files([{"path": name, "data": name} for name in names])
    assert [info.name for info in written] == ["a \"quoted\" é.txt", "many b.txt", "c.txt"]
    assert [shared.files.read(name) for name in names] == names


def test_what_cannot_be_read_or_written(shared):
    with pytest.raises(FileNotFoundException, match="path '/tmp/none' does not exist"):
        shared.files.read("/tmp/none")
    with pytest.raises(InvalidArgumentException, match="path '/tmp' is a directory"):
        shared.files.read("/tmp")
    with pytest.raises(InvalidArgumentException, match="path '/tmp' is a directory"):
        shared.files.write("/tmp", "x")
    with pytest.raises(InvalidArgumentException):
        shared.files.write("~root/x", "x")
    with pytest.raises(SandboxException, match="403: permission denied"):
        shared.files.write("/usr/x", "x")
    with pytest.raises(AuthenticationException, match="error looking up user 'who': user: unknown user who"):
        shared.files.read("/tmp/none", user="who")


def test_a_disk_that_is_full_says_so_and_keeps_nothing(box):
    box.commands.run("head -c 510M /dev/zero > /tmp/fill || true")
    with pytest.raises(NotEnoughSpaceException):
        box.files.write("big.bin", b"x" * 16_000_000)
    assert box.files.exists("big.bin") is False
    box.files.remove("/tmp/fill")
    box.files.write("big.bin", b"x" * 1_000_000)
    assert box.files.get_info("big.bin").size == 1_000_000


def test_metadata_follows_its_file(shared):
    shared.files.write("marked.txt", "1", metadata={"Author": "me", "step": "one"})
    assert shared.files.get_info("marked.txt").metadata == {"author": "me", "step": "one"}
    shared.files.rename("marked.txt", "renamed.txt")
    assert shared.files.get_info("renamed.txt").metadata == {"author": "me", "step": "one"}
    assert shared.files.write("renamed.txt", "2").metadata is None
    assert shared.files.get_info("renamed.txt").metadata is None
    with pytest.raises(InvalidArgumentException):
        shared.files.write("renamed.txt", "3", metadata={"k": "x" * 5000})


def test_entries(shared):
    shared.files.remove("tree")
    shared.files.write("tree/b/two.txt", "22")
    shared.files.write("tree/a.txt", "1")
    shared.commands.run("cd tree && ln -s b link && ln -s nowhere dangling && chmod 600 a.txt")
    deep = shared.files.list("tree", depth=2)
    assert [entry.path for entry in deep] == [
        "/home/user/tree/a.txt", "/home/user/tree/b", "/home/user/tree/b/two.txt", "/home/user/tree/link",
    ]
    assert [entry.name for entry in shared.files.list("tree")] == ["a.txt", "b", "link"]
    first = deep[0]
    assert (first.type, first.size, first.mode, first.permissions) == (FileType.FILE, 1, 0o600, "-rw-------")
    assert (first.owner, first.group) == ("user", "user")
    link = shared.files.get_info("tree/link")
    assert link.type == FileType.DIR and link.symlink_target == "/home/user/tree/b"
    assert shared.files.exists("tree/a.txt") and not shared.files.exists("tree/none")
    with pytest.raises(FileNotFoundException):
        shared.files.list("tree/none")
    with pytest.raises(InvalidArgumentException):
        shared.files.list("tree/a.txt")


def test_directories_moves_and_removals(shared):
    assert shared.files.make_dir("made/deep") is True
    assert shared.files.make_dir("made/deep") is False
    shared.files.write("made/file", "x")
    with pytest.raises(InvalidArgumentException):
        shared.files.make_dir("made/file")
    moved = shared.files.rename("made/file", "made/new/place")
    assert moved.path == "/home/user/made/new/place"
    # /tmp is another mount: what the kernel does not rename is carried over.
    shared.files.rename("made/new", "/tmp/carried/over")
    assert shared.files.read("/tmp/carried/over/place") == "x"
    assert not shared.files.exists("made/new")
    with pytest.raises(FileNotFoundException):
        shared.files.rename("made/none", "made/other")
    shared.files.remove("made")
    shared.files.remove("made")
    assert not shared.files.exists("made")


def test_a_watcher_tells_what_happens(shared):
    shared.files.make_dir("watched/before")
    watcher = shared.files.watch_dir("watched", recursive=True, include_entry=True)
    seen = []

    def told(kind, name):
        def look():
            seen.extend(watcher.get_new_events())
            return [event for event in seen if (event.type, event.name) == (kind, name)]

        return until(look)

    shared.files.write("watched/a.txt", "1")
    created = told(FilesystemEventType.CREATE, "a.txt")
    assert created[0].entry is None or created[0].entry.path == "/home/user/watched/a.txt"
    told(FilesystemEventType.WRITE, "a.txt")
    shared.files.write("watched/before/b.txt", "1")
    told(FilesystemEventType.CREATE, "before/b.txt")
    shared.commands.run("chmod 600 watched/a.txt")
    told(FilesystemEventType.CHMOD, "a.txt")
    shared.files.rename("watched/a.txt", "watched/c.txt")
    told(FilesystemEventType.RENAME, "a.txt")
    told(FilesystemEventType.CREATE, "c.txt")
    shared.files.remove("watched/c.txt")
    told(FilesystemEventType.REMOVE, "c.txt")
    watcher.stop()
    with pytest.raises(FileNotFoundException):
        shared.files.watch_dir("watched/none")
    with pytest.raises(InvalidArgumentException):
        shared.files.watch_dir("watched/before/b.txt")


def test_signed_addresses(shared):
    shared.files.write("signed é.txt", "secret")
    url = shared.download_url("signed é.txt")
    status, headers, body = fetch(url)
    assert (status, body) == (200, b"secret")
    assert headers["content-type"] == "application/octet-stream"
    assert fetch(shared.download_url("signed é.txt", use_signature_expiration=600))[2] == b"secret"
    expired = refused(shared.download_url("signed é.txt", use_signature_expiration=-10))
    assert expired == (401, {"code": 401, "message": "signature is already expired"})
    forged = refused(url.replace("signature=v1_", "signature=v1_x"))
    assert forged == (401, {"code": 401, "message": "invalid signature"})
    # A signature to read is none to write.
    assert refused(url, data=b"x", headers={"content-type": "application/octet-stream"})[0] == 401
    up = shared.upload_url("uploaded.txt")
    status, _, body = fetch(up, data=b"from outside", headers={"content-type": "application/octet-stream"})
    assert status == 200 and json.loads(body)[0]["path"] == "/home/user/uploaded.txt"
    assert shared.files.read("uploaded.txt") == "from outside"


def test_ranges_and_encodings(shared):
    shared.files.write("range.txt", "0123456789")
    url = shared.download_url("range.txt")
    status, headers, body = fetch(url, headers={"range": "bytes=2-4"})
    assert (status, body, headers["content-range"]) == (206, b"234", "bytes 2-4/10")
    assert fetch(url, headers={"range": "bytes=-3"})[2] == b"789"
    with pytest.raises(urllib.error.HTTPError) as error:
        fetch(url, headers={"range": "bytes=10-"})
    assert error.value.code == 416 and error.value.headers["content-range"] == "bytes */10"
    status, headers, body = fetch(url, headers={"accept-encoding": "gzip"})
    assert headers["content-encoding"] == "gzip" and gzip.decompress(body) == b"0123456789"
    assert refused(url, headers={"accept-encoding": "identity;q=0"})[0] == 406
    with pytest.raises(urllib.error.HTTPError) as error:
        fetch(url, headers={"if-modified-since": headers["last-modified"]})
    assert error.value.code == 304


def test_files_become_one_which_is_whole_or_not_there(shared):
    def compose(**body):
        headers = {"E2b-Sandbox-Id": shared.sandbox_id, "E2b-Sandbox-Port": "49983", "content-type": "application/json"}
        headers["X-Access-Token"] = shared._envd_access_token
        return {"url": f"{URL}/files/compose", "data": json.dumps(body).encode(), "headers": headers}

    shared.files.write_files([{"path": "parts/1", "data": "one "}, {"path": "parts/2", "data": "two"}])
    missing = refused(**compose(source_paths=["parts/1", "parts/3"], destination="whole.txt"))
    assert missing[0] == 404 and "parts/3" in missing[1]["message"]
    assert not shared.files.exists("whole.txt") and shared.files.read("parts/1") == "one "
    status, _, body = fetch(**compose(source_paths=["parts/1", "/home/user/parts/2"], destination="~/new/whole.txt"))
    assert (status, json.loads(body)) == (200, {"path": "/home/user/new/whole.txt", "name": "whole.txt", "type": "file"})
    assert shared.files.read("new/whole.txt") == "one two" and shared.files.list("parts") == []
    assert [entry.name for entry in shared.files.list("new")] == ["whole.txt"]
    # A link in its place is replaced, not followed; and what cannot be removed is told.
    shared.commands.run("echo kept > new/kept; ln -s kept new/link; echo 1 > parts/1")
    assert fetch(**compose(source_paths=["parts/1"], destination="new/link"))[0] == 200
    assert shared.files.read("new/kept") == "kept\n" and shared.files.read("new/link") == "1\n"
    assert refused(**compose(source_paths=["/etc/passwd"], destination="new/link"))[0] == 403
    assert sorted(entry.name for entry in shared.files.list("new")) == ["kept", "link", "whole.txt"]
    # The result by another name is no source that goes: over a link, over two, and by a way back.
    shared.commands.run("mkdir -p deep/in; ln -s ../deep new/a; ln -s /home/user/new/a/in alias; echo -n 1 > deep/in/x; echo -n 2 > deep/y")
    for same in "alias/x", "new/a/in/x", "alias/../in/x", "deep/in/../in/./x":
        assert fetch(**compose(source_paths=[same, "deep/y"], destination="deep/in/x"))[0] == 200
        assert shared.files.read("deep/in/x") == "12" and not shared.files.exists("deep/y")
        shared.files.write_files([{"path": "deep/in/x", "data": "1"}, {"path": "deep/y", "data": "2"}])
    assert fetch(**compose(source_paths=["deep/in/x"], destination="alias/x"))[0] == 200
    assert shared.files.read("deep/in/x") == "1"
    shared.commands.run("rm -r deep alias new/a")
    for wrong in {"source_paths": []}, {"source_paths": ["~other/x"]}, {"source_paths": ["new"]}:
        assert refused(**compose(destination="x", **wrong))[0] == 400
    # Each name on the way may have to be looked at.
    winding = refused(**compose(source_paths=["deep/../" * 600 + "x"] * 20, destination="x"))
    assert winding[0] == 400 and "names on their way" in str(winding), winding
    unknown = refused(**compose(source_paths=["new/whole.txt"], destination="x", username="nobody"))
    assert unknown[0] == 401 and "nobody" in unknown[1]["message"]
