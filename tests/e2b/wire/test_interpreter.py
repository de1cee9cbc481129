"""What the code interpreter's SDKs take for a server inside a sandbox."""

import json
import pathlib

import pytest
from conftest import Box

PORT = 49999
EVERYWHERE = "GET /health", "POST /execute", "GET /contexts", "POST /contexts", "POST /contexts/{id}/restart", "DELETE /contexts/{id}"


@pytest.fixture(scope="module")
def coder(wire):
    if not pathlib.Path("/usr/lib/python3/dist-packages/IPython").is_dir():
        wire.missing.clear()
        pytest.skip("the host's Python has no IPython (package ipython3)")
    made = wire.make(templateID="code-interpreter-v1")
    yield made
    wire.end(made)


def test_code_runs_in_contexts(wire, coder):
    ask = lambda endpoint, *parts, **more: wire.inside(coder, endpoint, *parts, port=PORT, **more)

    def run(**body):
        said = ask("POST /execute", json_body={"context_id": None, "language": None, "env_vars": None, **body})
        return [json.loads(line) for line in said.text.splitlines()] if said.status == 200 else said

    assert ask("GET /health").text == '"OK"'
    lines = run(code="print('said'); 1 + 1")
    assert [line["type"] for line in lines][-1] == "end_of_execution", lines
    assert [line["text"] for line in lines if line["type"] == "result"] == ["2"], lines
    assert "".join(line["text"] for line in lines if line["type"] == "stdout") == "said\n", lines
    failed = [line for line in run(code="1 / 0") if line["type"] == "error"]
    assert failed[0]["name"] == "ZeroDivisionError" and {"value", "traceback"} <= set(failed[0]), failed
    listed = ask("GET /contexts").json
    assert [one["language"] for one in listed][:2] == ["python", "javascript"], listed
    made = ask("POST /contexts", json_body={"language": "python", "cwd": "/tmp"})
    assert made.status == 200 and made.json["cwd"] == "/tmp", made
    at = made.json["id"]
    assert run(code="kept = 5", context_id=at)[-1]["type"] == "end_of_execution"
    assert run(code="1", context_id=at, language="python").status == 400
    assert run(code="1", context_id="nothing").status == 404
    assert run(code="1", language="cobol").status == 500
    assert ask("POST /execute", json_body={}).status == 400
    assert ask("POST /contexts", json_body={"language": "cobol"}).status == 500
    assert ask("POST /contexts", json_body={"cwd": "~other"}).status == 400
    assert ask("POST /contexts/{id}/restart", at).status == 200
    assert [line["name"] for line in run(code="kept", context_id=at) if line["type"] == "error"] == ["NameError"]
    assert ask("POST /contexts/{id}/restart", "nothing").status == 404
    assert ask("DELETE /contexts/{id}", at).status == 200
    assert ask("DELETE /contexts/{id}", at).status == 404


def test_who_is_let_in(wire, coder):
    named = {name: value for name, value in coder.headers(PORT).items() if name != "X-Access-Token"}
    code = {"code": "1"}
    assert wire.ask("POST /execute", json_body=code, headers=named, key=None).status == 401
    assert wire.ask("POST /execute", json_body=code, headers={**named, "X-Access-Token": "wrong"}, key=None).status == 401
    gone = Box({"sandboxID": "a" * 20, "envdAccessToken": "x"})
    for endpoint in EVERYWHERE:
        assert wire.inside(gone, endpoint, "context", port=PORT).status == 502, endpoint
    closed = wire.make(network={"allowPublicTraffic": False})
    try:
        for endpoint in EVERYWHERE:
            body = code if endpoint.startswith("POST") else None
            assert wire.inside(closed, endpoint, "context", port=PORT, json_body=body).status == 403, endpoint
    finally:
        wire.end(closed)
