"""Template builds and tags."""

import hashlib
import io
import os
import tarfile
import uuid

from conftest import asked, until

OTHER = os.environ["E2B_OTHER_KEY"]


def archive():
    """One file, as the SDKs pack it."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as tar:
        entry = tarfile.TarInfo("note.txt")
        entry.size = 5
        tar.addfile(entry, io.BytesIO(b"note\n"))
    return held.getvalue()


def test_a_template_is_built_tagged_and_deleted(wire):
    name = "w-" + uuid.uuid4().hex[:12]
    new = {"name": name, "tags": ["one"], "cpuCount": 1, "memoryMB": 512}
    made = wire.ask("POST /v3/templates", json_body=new)
    assert made.status == 202 and made.json["names"] == [name] and made.json["tags"] == ["one"], made
    at, build = made.json["templateID"], made.json["buildID"]
    for wrong in {}, {**new, "name": "a/b"}, {**new, "name": "A B"}, {**new, "cpuCount": 99}, {**new, "memoryMB": 1}, {**new, "minFreeDiskMb": 10**9}:
        assert wire.ask("POST /v3/templates", json_body=wrong).status == 400, wrong
    assert wire.ask("POST /v3/templates", json_body={**new, "name": "base"}).status == 403
    assert wire.ask("POST /v3/templates", json_body=new, key=None).status == 401

    packed = archive()
    digest = hashlib.sha256(packed).hexdigest()
    link = wire.ask("GET /templates/{id}/files/{hash}", at, digest)
    assert link.status == 201 and link.json["present"] is False, link
    assert wire.ask("GET /templates/{id}/files/{hash}", at, "nothex").status == 400
    assert wire.ask("GET /templates/{id}/files/{hash}", "nothing", digest).status == 404
    assert wire.ask("GET /templates/{id}/files/{hash}", at, digest, key=None).status == 401
    address = link.json["url"].partition("?pass=")[2]
    put = "PUT /templates/{id}/files/{hash}"
    assert wire.ask(put, at, digest, query={"pass": "x" * 40}, body=packed, key=None).status == 403
    assert wire.ask(put, at, "nothex", query={"pass": address}, body=packed, key=None).status == 400
    assert wire.ask(put, at, digest, query={"pass": address}, body=packed, key=None).status == 200
    assert wire.ask(put, at, digest, query={"pass": address}, body=packed, key=None).status == 403
    assert wire.ask("GET /templates/{id}/files/{hash}", at, digest).json["present"] is True

    start = "POST /v2/templates/{id}/builds/{build}"
    copy = {"type": "COPY", "args": ["note.txt", "/home/user/", "", ""], "filesHash": digest}
    plan = {"fromImage": "base", "steps": [copy, {"type": "RUN", "args": ["cat note.txt"]}]}
    for wrong in [
        {},
        {**plan, "fromTemplate": "base"},
        {**plan, "steps": [{"type": "DANCE"}]},
        {**plan, "steps": [{"type": "COPY", "args": ["a", "b"]}]},
        {**plan, "fromImageRegistry": {"type": "registry", "username": "u", "password": "p"}},
    ]:
        assert wire.ask(start, at, build, json_body=wrong).status == 400, wrong
    assert wire.ask(start, at, "nothing", json_body=plan).status == 404
    assert wire.ask(start, at, build, json_body=plan, key=None).status == 401
    status = "GET /templates/{id}/builds/{build}/status"
    assert wire.ask(status, at, build).json["status"] == "waiting"
    assert wire.ask(start, at, build, json_body=plan).status == 202
    assert wire.ask(start, at, build, json_body=plan).status == 409
    done = until(lambda: (said := wire.ask(status, at, build).json)["status"] in ("ready", "error") and said)
    assert done["status"] == "ready" and done["logs"] == [] and done["logEntries"], done
    assert "note" in [entry["message"] for entry in done["logEntries"]]
    assert {"timestamp", "message", "level"} <= set(done["logEntries"][0])
    assert wire.ask(status, at, "nothing").status == 404
    assert wire.ask(status, at, build, key=None).status == 401
    assert wire.ask(status, at, build, query={"limit": "x"}).status == 400
    logs = "GET /templates/{id}/builds/{build}/logs"
    assert wire.ask(logs, at, build).json["logs"]
    assert wire.ask(logs, at, build, query={"source": "x"}).status == 400
    assert wire.ask(logs, at, "nothing").status == 404
    assert wire.ask(logs, at, build, key=None).status == 401

    failing = wire.ask("POST /v3/templates", json_body={**new, "name": name + "-fails"}).json
    broken = {"fromImage": "base", "steps": [{"type": "RUN", "args": ["exit 3"]}]}
    assert wire.ask(start, failing["templateID"], failing["buildID"], json_body=broken).status == 202
    told = until(lambda: (said := wire.ask(status, failing["templateID"], failing["buildID"]).json)["status"] == "error" and said)
    assert told["reason"]["step"] == "1" and "code 3" in told["reason"]["message"], told
    assert wire.ask("POST /v2/sandboxes", json_body={"templateID": name + "-fails"}).status == 404

    for endpoint in "GET /templates", "GET /v2/templates":
        listed = wire.ask(endpoint).json
        assert name in [one for template in listed for one in template["names"]], listed
        for field in "templateID buildID cpuCount memoryMB diskSizeMB public aliases names createdAt updatedAt createdBy lastSpawnedAt spawnCount buildCount envdVersion buildStatus".split():
            assert field in listed[0], listed
        assert wire.ask(endpoint, key=None).status == 401
    assert wire.ask("GET /v2/templates", query={"limit": "0"}).status == 400
    assert wire.ask("GET /default-templates").json == []
    assert wire.ask("GET /default-templates", key=None).status == 401
    shown = wire.ask("GET /templates/{id}", at)
    assert [one["status"] for one in shown.json["builds"]] == ["ready"], shown
    assert wire.ask("GET /templates/{id}", at, query={"limit": "0"}).status == 400
    alias = "GET /templates/aliases/{alias}"
    assert wire.ask(alias, name).json == {"templateID": at, "public": False}
    assert wire.ask(alias, "base").status == 403
    for endpoint in alias, "GET /templates/{id}", "DELETE /templates/{id}", "PATCH /templates/{id}", "PATCH /v2/templates/{id}":
        body = {"public": False} if endpoint.startswith("PATCH") else None
        assert wire.ask(endpoint, "nothing", json_body=body).status == 404
        # Somebody else's is like nothing.
        assert wire.ask(endpoint, name, json_body=body, key=OTHER).status == 404
        assert wire.ask(endpoint, name, json_body=body, key=None).status == 401
    for endpoint in "PATCH /templates/{id}", "PATCH /v2/templates/{id}":
        assert wire.ask(endpoint, at, json_body={"public": False}).json == {"names": [name]}
        assert wire.ask(endpoint, at, json_body={"public": True}).status == 400

    tags = {"target": f"{name}:one", "tags": ["two"]}
    assert wire.ask("POST /templates/tags", json_body=tags).json == {"tags": ["two"], "buildID": build}
    assert wire.ask("POST /templates/tags", json_body={**tags, "target": f"{name}:none"}).status == 404
    assert wire.ask("POST /templates/tags", json_body={**tags, "tags": ["A B"]}).status == 400
    assert wire.ask("POST /templates/tags", json_body=tags, key=None).status == 401
    shown = {one["tag"]: one["buildID"] for one in wire.ask("GET /templates/{id}/tags", at).json}
    assert shown["one"] == shown["two"] == build, shown
    assert wire.ask("GET /templates/{id}/tags/count", at).json == {"total": len(shown)}
    exists = "GET /templates/{id}/tags/exists"
    assert wire.ask(exists, at, query={"tag": "two"}).json == {"exists": True, "normalizedTag": "two"}
    assert wire.ask(exists, at, query={"tag": "none"}).json["exists"] is False
    assert wire.ask(exists, at, query={"tag": "a/b"}).status == 400
    groups = wire.ask("GET /templates/{id}/tags/groups", at, query={"sort": "name_asc"}).json
    assert [one["tag"] for one in groups["tags"]] == sorted(shown) and groups["nextCursor"] is None, groups
    assert wire.ask("GET /templates/{id}/tags/groups", at, query={"sort": "x"}).status == 400
    given = "GET /templates/{id}/tags/{tag}/assignments"
    data = wire.ask(given, at, "two").json["data"]
    assert {"assignmentId", "buildId", "assignedAt", "buildCreatedAt", "buildFinishedAt"} <= set(data[0]), data
    assert wire.ask(given, at, "none").status == 404
    assert wire.ask(given, at, "two", key=None).status == 401
    for endpoint in "tags", "tags/count", "tags/exists", "tags/groups":
        query = {"tag": "two"} if endpoint.endswith("exists") else None
        assert wire.ask(f"GET /templates/{{id}}/{endpoint}", "nothing", query=query).status == 404
        assert wire.ask(f"GET /templates/{{id}}/{endpoint}", at, query=query, key=None).status == 401
    assert wire.ask("DELETE /templates/tags", json_body={"name": name, "tags": ["two"]}).status == 204
    assert wire.ask("DELETE /templates/tags", json_body={"name": name, "tags": ["two"]}).status == 404
    assert wire.ask("DELETE /templates/tags", json_body={"name": "nothing", "tags": ["two"]}).status == 404
    assert wire.ask("DELETE /templates/tags", json_body={"name": name, "tags": ["two"]}, key=None).status == 401
    assert wire.ask("DELETE /templates/{id}", at).status == 204
    assert wire.ask("DELETE /templates/{id}", at).status == 404
    wire.ask("DELETE /templates/{id}", failing["templateID"])
    assert asked("GET", f"/templates/{name}", {"X-API-KEY": OTHER}).status == 404
