"""Volumes and what lies in them."""

import os

OTHER = os.environ["E2B_OTHER_KEY"]
FIELDS = "name type path size mode uid gid atime mtime ctime".split()


def test_volumes(wire):
    made = wire.ask("POST /volumes", json_body={"name": "wire"})
    assert made.status == 201 and made.json["name"] == "wire", made
    at, token = made.json["volumeID"], made.json["token"]
    assert wire.ask("POST /volumes", json_body={"name": "wire"}).status == 409
    assert wire.ask("POST /volumes", json_body={"name": "a b"}).status == 400
    assert wire.ask("POST /volumes", json_body={"name": "x"}, key=None).status == 401
    assert wire.ask("GET /volumes").json == [{"volumeID": at, "name": "wire"}]
    assert wire.ask("GET /volumes", key=None).status == 401
    assert wire.ask("GET /volumes", key=OTHER).json == []
    assert wire.ask("GET /volumes/{id}", at).json["token"] == token
    for endpoint in "GET /volumes/{id}", "DELETE /volumes/{id}":
        assert wire.ask(endpoint, "nothing").status == 404
        assert wire.ask(endpoint, at, key=OTHER).status == 404
        assert wire.ask(endpoint, at, key=None).status == 401
    more = [wire.ask("POST /volumes", json_body={"name": f"more-{number}"}) for number in range(6)]
    assert [one.status for one in more] == [201] * 5 + [429], more
    for one in more[:-1]:
        assert wire.ask("DELETE /volumes/{id}", one.json["volumeID"]).status == 204

    def content(endpoint, path="/", bearer=token, **more):
        query = {**({"path": path} if path is not None else {}), **more.pop("query", {})}
        said = wire.ask(endpoint, at, query=query, key=None, headers={"Authorization": f"Bearer {bearer}"}, **more)
        if said.status >= 400:
            # Words for codes, where all others have numbers.
            assert isinstance(said.json["code"], str) and said.headers["Should-Retry"] == "false", said
        return said

    path, directory, file = (f"/volumecontent/{{id}}/{what}" for what in ("path", "dir", "file"))
    for endpoint in f"GET {path}", f"PATCH {path}", f"DELETE {path}", f"GET {directory}", f"POST {directory}", f"GET {file}", f"PUT {file}":
        body = {"json_body": {"mode": 0o600}} if endpoint.startswith("PATCH") else {}
        assert content(endpoint, "/x", bearer="wrong", **body).status == 401, endpoint
        assert content(endpoint, None, **body).status == 400, endpoint
        assert content(endpoint, "/../x", **body).status == 400, endpoint
    made = content(f"POST {directory}", "/d")
    assert made.status == 201 and all(field in made.json for field in FIELDS) and made.json["type"] == "directory", made
    assert content(f"POST {directory}", "/no/such").status == 404
    assert content(f"POST {directory}", "/d").status == 409
    assert content(f"POST {directory}", "/d/e", query={"uid": "0"}).status == 400
    wrote = content(f"PUT {file}", "/d/file", body=b"content")
    assert wrote.status == 201 and wrote.json["size"] == 7 and wrote.json["type"] == "file", wrote
    assert content(f"PUT {file}", "/d/file", body=b"again").status == 201
    assert content(f"PUT {file}", "/d/file", body=b"once more", query={"force": "false"}).status == 409
    assert content(f"PUT {file}", "/no/such", body=b"x").status == 404
    assert content(f"PUT {file}", "/d", body=b"x", query={"force": "true"}).status == 400
    assert content(f"PUT {file}", "/big", body=bytes(17 << 20)).status == 507
    assert content(f"GET {file}", "/d/file").text == "again"
    assert content(f"GET {file}", "/d/none").status == 404
    assert content(f"GET {file}", "/d").status == 400
    listed = content(f"GET {directory}", "/d")
    assert [one["path"] for one in listed.json] == ["/d/file"], listed
    assert content(f"GET {directory}", "/none").status == 404
    assert content(f"GET {directory}", "/d", query={"depth": "0"}).status == 400
    assert content(f"GET {directory}", "/d/file").status == 400
    assert content(f"GET {directory}", "/d/file/none").status == 404
    assert content(f"GET {path}", "/d/file").json["name"] == "file"
    assert content(f"GET {path}", "/none").status == 404
    assert content(f"PATCH {path}", "/d/file", json_body={"mode": 0o600}).json["mode"] & 0o777 == 0o600
    assert content(f"PATCH {path}", "/none", json_body={"mode": 0o600}).status == 404
    assert content(f"PATCH {path}", "/d/file", json_body={"uid": 0}).status == 400
    assert content(f"DELETE {path}", "/d").status == 204
    assert content(f"DELETE {path}", "/d").status == 404
    assert wire.ask("DELETE /volumes/{id}", at).status == 204
    assert content(f"GET {path}", "/").status == 401
