"""Files of a sandbox, over more connections than its tenant may have."""

from conftest import crowded


def test_more_connections_than_a_tenant_may_have(wire):
    with crowded() as box:
        for endpoint in "GET /files", "POST /files":
            headers = {"Content-Type": "application/octet-stream"}
            body = b"x" if endpoint.startswith("POST") else None
            said = wire.inside(box, endpoint, query={"path": "a"}, headers=headers, body=body)
            assert said.status == 429, said
