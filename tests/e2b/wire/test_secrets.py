"""Secrets: names and versions, never values."""

import os
import uuid

OTHER = os.environ["E2B_OTHER_KEY"]
VALUE = "a value that nobody is told"


def test_secrets(wire):
    name = "w-" + uuid.uuid4().hex[:12]
    made = wire.ask("POST /secrets", json_body={"name": name.upper(), "value": VALUE, "metadata": {"a": "b"}})
    assert made.status == 201 and made.json["secretID"].startswith("sec_"), made
    assert (made.json["name"], made.json["currentVersion"], made.json["metadata"]) == (name, 1, {"a": "b"})
    assert {"createdAt", "updatedAt"} <= set(made.json) and VALUE not in made.text
    assert wire.ask("POST /secrets", json_body={"name": name, "value": VALUE}).status == 409
    for wrong in [
        {"name": "a{b", "value": VALUE},
        {"name": "", "value": VALUE},
        {"name": "short", "value": "short"},
        {"name": "much", "value": VALUE, "metadata": {str(number): "" for number in range(33)}},
        {"name": "none"},
    ]:
        said = wire.ask("POST /secrets", json_body=wrong)
        assert said.status == 400 and VALUE not in said.text, said
    assert wire.ask("POST /secrets", json_body={"name": "x", "value": VALUE}, key=None).status == 401
    assert [one["name"] for one in wire.ask("GET /secrets").json] == [name]
    assert wire.ask("GET /secrets", query={"limit": "0"}).status == 400
    assert wire.ask("GET /secrets", key=None).status == 401
    assert wire.ask("GET /secrets", key=OTHER).json == []
    for called in name, made.json["secretID"]:
        assert wire.ask("GET /secrets/{id}", called).json["name"] == name
    assert wire.ask("POST /secrets/{id}", name, json_body={"value": VALUE + "2"}).json["currentVersion"] == 2
    assert wire.ask("POST /secrets/{id}", name, json_body={"value": "short"}).status == 400
    for endpoint in "GET /secrets/{id}", "POST /secrets/{id}", "DELETE /secrets/{id}":
        body = {"value": VALUE} if endpoint.startswith("POST") else None
        assert wire.ask(endpoint, "nothing", json_body=body).status == 404
        assert wire.ask(endpoint, name, json_body=body, key=OTHER).status == 404
        assert wire.ask(endpoint, name, json_body=body, key=None).status == 401
    more = [wire.ask("POST /secrets", json_body={"name": f"more-{number}", "value": VALUE}) for number in range(3)]
    assert [one.status for one in more] == [201, 201, 429], more
    for one in [name, "more-0", "more-1"]:
        assert wire.ask("DELETE /secrets/{id}", one).status == 204
    assert wire.ask("DELETE /secrets/{id}", name).status == 404
