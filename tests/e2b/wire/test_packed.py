"""A host with room for four virtual machines: what is asked for beyond that, and what is not ready in time."""

import threading

from conftest import asked, stopped, wardens

CONNECT = "POST /sandboxes/{id}/connect", "POST /v2/sandboxes/{id}/connect"
SOON = {"timeout": 600}


def test_there_is_no_room(wire):
    lying = []
    for endpoint in CONNECT:
        lies = wire.make(templateID="machine")
        assert wire.ask("POST /sandboxes/{id}/pause", lies.id, json_body={}).status == 204
        lying.append((endpoint, lies))
    others = [wire.make(templateID="machine") for _ in range(4)]
    for endpoint, lies in lying:
        said = wire.ask(endpoint, lies.id, json_body=SOON)
        assert said.status == 503 and int(said.headers["Retry-After"]) >= 1, said
    for endpoint in "POST /sandboxes/{id}/snapshots", "POST /sandboxes/{id}/fork":
        said = wire.ask(endpoint, others[0].id, json_body={})
        assert said.status == 503 and int(said.headers["Retry-After"]) >= 1, said
    for other in others:
        assert wire.ask("GET /sandboxes/{id}", other.id).json["state"] == "running"
        wire.end(other)

    said = {}

    def connect(endpoint, lies):
        said[endpoint] = wire.ask(endpoint, lies.id, json_body=SOON)

    # Each of them has two places until it is there, its own and that of what it is read into.
    with stopped(wardens()):
        asking = [threading.Thread(target=connect, args=one) for one in lying]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
    assert [said[endpoint].status for endpoint in CONNECT] == [504, 504], said
    # They lie where they lay, whatever it was that they did not go on for.
    for endpoint, lies in lying:
        assert wire.ask("GET /sandboxes/{id}", lies.id).json["state"] == "paused"
        assert wire.ask(endpoint, lies.id, json_body=SOON).status == 201
        assert asked("GET", "/health", lies.headers()).status == 204
        wire.end(lies)
