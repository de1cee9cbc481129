"""A daemon with little room: one sandbox for each key, two for all."""

import os

import pytest
from conftest import Box
from e2b import RateLimitException, Sandbox, ServiceBusyException

NEW = {"templateID": "base", "timeout": 600}
OTHERS = os.environ["E2B_OTHER_KEY"], os.environ["E2B_THIRD_KEY"]


def test_a_quota_and_the_host_have_an_end(wire):
    made = wire.make()
    for endpoint in "POST /v2/sandboxes", "POST /sandboxes":
        spent = wire.ask(endpoint, json_body=NEW)
        assert spent.status == 429, spent
    other = wire.ask("POST /v2/sandboxes", json_body=NEW, key=OTHERS[0])
    assert other.status == 201, other
    for endpoint in "POST /v2/sandboxes", "POST /sandboxes":
        full = wire.ask(endpoint, json_body=NEW, key=OTHERS[1])
        assert full.status == 503 and full.json["error_code"] == "sandbox_capacity_unavailable", full
        assert int(full.headers["Retry-After"]) >= 1
    # As the SDK tells it: at once, and not after three tries more.
    with pytest.raises(RateLimitException, match="the quota"):
        Sandbox.create()
    with pytest.raises(ServiceBusyException):
        Sandbox.create(api_key=OTHERS[1])
    wire.ask("DELETE /sandboxes/{id}", Box(other.json).id, key=OTHERS[0])
    wire.end(made)
