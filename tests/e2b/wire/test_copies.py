"""Snapshots and forks, of a template whose sandboxes are virtual machines."""

from conftest import Box


def test_a_machine_is_kept_and_forked(wire):
    made = wire.make(templateID="machine", timeout=900)
    kept = wire.ask("POST /sandboxes/{id}/snapshots", made.id, json_body={"name": "wire"})
    assert kept.status == 201 and kept.json["snapshotID"].endswith("/wire:default") and kept.json["names"], kept
    assert [one["snapshotID"] for one in wire.ask("GET /snapshots", query={"sandboxID": made.id}).json] == [kept.json["snapshotID"]]
    assert wire.ask("POST /v3/templates", json_body={"name": "wire"}).status == 409
    built = wire.ask("POST /v3/templates", json_body={"name": "wire-built"})
    assert wire.ask("POST /sandboxes/{id}/snapshots", made.id, json_body={"name": "wire-built"}).status == 409
    wire.ask("DELETE /templates/{id}", built.json["templateID"])
    forked = wire.ask("POST /sandboxes/{id}/fork", made.id, json_body={"timeout": 600, "count": 1})
    assert forked.status == 201, forked
    fork = Box(forked.json[0]["sandbox"])
    assert fork.id != made.id and fork.token != made.token
    # What stands still is not copied.
    assert wire.ask("POST /sandboxes/{id}/pause", made.id, json_body={}).status == 204
    assert wire.ask("POST /sandboxes/{id}/fork", made.id, json_body={}).status == 409
    assert wire.ask("POST /sandboxes/{id}/snapshots", made.id, json_body={}).status == 409
    for box in made, fork:
        wire.end(box)
    assert wire.ask("POST /sandboxes/{id}/fork", fork.id, json_body={}).status == 404
    assert wire.ask("DELETE /templates/{id}", kept.json["snapshotID"]).status == 204
    assert wire.ask("DELETE /templates/{id}", kept.json["snapshotID"]).status == 404
