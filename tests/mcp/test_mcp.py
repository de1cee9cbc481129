"""The official client of the Model Context Protocol, unmodified, against a daemon (MCP_URL, MCP_KEY) and against `blastbox mcp`
(MCP_PROGRAM). Each test runs in both generations of the protocol: with a session, and without."""

import os

import anyio
import httpx2
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

#: Nothing is asserted with it: what needs it has hung.
PATIENCE = 120
TOOLS = {
    "run_code", "run_command", "read_file", "write_file", "list_files", "start_box", "stop_box", "list_boxes",
    "describe_policy", "answer_call",
}


def over_http(key=os.environ["MCP_KEY"]):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=PATIENCE)
    return streamable_http_client(os.environ["MCP_URL"], http_client=http)


def over_stdio():
    return stdio_client(StdioServerParameters(command=os.environ["MCP_PROGRAM"], args=["mcp"], env=dict(os.environ)))


@pytest.fixture(params=["legacy", "auto"])
def mode(request):
    return request.param


@pytest.fixture(params=[over_http, over_stdio])
def way(request):
    return request.param


def run(test, *arguments):
    async def bounded():
        with anyio.fail_after(PATIENCE):
            await test(*arguments)

    anyio.run(bounded)


def text(result):
    return "".join(part.text for part in result.content)


def test_tools_are_listed_and_described(way, mode):
    async def talk():
        async with Client(way(), mode=mode) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == TOOLS
            assert all(tool.description and tool.input_schema["type"] == "object" for tool in tools.values())

    run(talk)


def test_code_commands_and_files_in_a_box_that_stays(way, mode):
    async def talk():
        async with Client(way(), mode=mode) as client:
            box = (await client.call_tool("start_box", {})).structured_content["box"]
            ran = await client.call_tool("run_code", {"language": "python", "code": "print(6 * 7)", "box": box})
            assert not ran.is_error and ran.structured_content["stdout"] == "42\n"
            for code, printed in [("x = 20", ""), ("x + 1", "21\n")]:
                ran = await client.call_tool(
                    "run_code", {"language": "python", "code": code, "stateful": True, "box": box}
                )
                assert ran.structured_content["stdout"] == printed, ran
            wrote = await client.call_tool("write_file", {"path": "/tmp/a/b.txt", "text": "content", "box": box})
            assert not wrote.is_error, text(wrote)
            read = await client.call_tool("read_file", {"path": "/tmp/a/b.txt", "box": box})
            assert "content" in str(read.structured_content)
            ran = await client.call_tool("run_command", {"command": ["cat", "/tmp/a/b.txt"], "box": box})
            assert ran.structured_content["stdout"] == "content"
            listed = await client.call_tool("list_boxes", {})
            assert box in str(listed.structured_content)
            stopped = await client.call_tool("stop_box", {"box": box})
            assert stopped.structured_content["box_id"] == box

    run(talk)


def test_what_fails_is_an_answer_for_the_model(way, mode):
    async def talk():
        async with Client(way(), mode=mode) as client:
            failed = await client.call_tool("run_command", {"command": ["/bin/sh", "-c", "echo no >&2; exit 3"]})
            assert failed.is_error and failed.structured_content["exit_code"] == 3 and "no" in text(failed)
            late = await client.call_tool("run_command", {"command": ["sleep", "60"], "timeout_seconds": 1})
            assert late.is_error and late.structured_content["timed_out"] is True
            nobody = await client.call_tool("run_command", {"command": ["true"], "box": "bx_" + "a" * 20})
            assert nobody.is_error and "no box" in text(nobody)
            policy = await client.call_tool("describe_policy", {})
            assert not policy.is_error and "network" in str(policy.structured_content)

    run(talk)


def test_progress_is_told(way):
    async def talk():
        told = []

        async def hear(progress, total, message):
            told.append(message)

        async with Client(way(), mode="legacy") as client:
            # It ends when it has been told of once, whenever that is.
            ran = await client.call_tool("run_command", {"command": ["sleep", "3"]}, progress_callback=hear)
            assert not ran.is_error
        assert told and "running for" in told[0]

    run(talk)


def test_nobody_comes_in_without_a_key(mode):
    async def talk():
        with pytest.raises(BaseException) as refused:
            async with Client(over_http("bbx_wrong"), mode=mode) as client:
                await client.list_tools()
        assert not isinstance(refused.value, TimeoutError)

    run(talk)


def test_a_box_is_seen_by_other_sessions_of_the_same_key_only_if_it_was_made_to_stay():
    async def talk():
        async with Client(over_http(), mode="legacy") as one, Client(over_http(), mode="legacy") as other:
            stays = (await one.call_tool("start_box", {})).structured_content["box"]
            own = (await one.call_tool("run_command", {"command": ["true"]})).structured_content["box"]
            seen = str((await other.call_tool("list_boxes", {})).structured_content)
            assert stays in seen and own not in seen
            assert (await other.call_tool("run_command", {"command": ["true"], "box": own})).is_error
            assert not (await other.call_tool("stop_box", {"box": stays})).is_error

    run(talk)
