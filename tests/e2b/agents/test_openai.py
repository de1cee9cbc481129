"""OpenAI's Agents SDK: its own sandbox client for E2B under a SandboxAgent. It runs with the newest of E2B's SDKs, and with the older one that
its extra `e2b` asks for, whose keys must look like E2B's (`blastbox key create --e2b`)."""

import asyncio
import io
import re
from pathlib import Path

import pytest
from agents import RunConfig, Runner, set_tracing_disabled
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions, E2BSandboxType
from agents.items import ToolCallOutputItem
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.capabilities import Filesystem, Shell
from agents.sandbox.entries import File
from agents.sandbox.snapshot import LocalSnapshotSpec
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from e2b import Sandbox, SandboxException
from openai.types.responses import ResponseCustomToolCall

set_tracing_disabled(True)

#: Where the SDK puts a workspace by itself.
ROOT = "/workspace"
#: Without this the client asks for the whole internet by itself.
CLOSED = {"allow_internet_access": False}
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+one\n+two\n*** End Patch"


def run(cmd, **words):
    """What a model says that wants a command run."""
    return [function_call("exec_command", {"cmd": cmd, **words}, call_id=cmd)]


def answers(ended):
    """What the tools answered, in order."""
    return [item.output for item in ended.new_items if isinstance(item, ToolCallOutputItem)]


def printed(answer):
    return answer.split("Output:\n", 1)[1].strip()


@pytest.mark.parametrize("kind", [E2BSandboxType.E2B, E2BSandboxType.CODE_INTERPRETER])
def test_a_sandbox_agent_works_in_a_box(host, kind):
    def answer_it(told):
        """Types into the program that waits, whose number is in what the model was told."""
        number = int(re.findall(r"session ID (\d+)", str(told.input))[-1])
        words = {"session_id": number, "chars": "a word\nexit\n", "yield_time_ms": 30_000}
        return ModelStep(output=[function_call("write_stdin", words, call_id="typed")])

    model = ScriptedModel(
        [
            run('pwd; cat given.txt; echo "$TOLD"; echo to the other >&2; exit 3'),
            [ResponseCustomToolCall(type="custom_tool_call", name="apply_patch", call_id="patch", input=PATCH)],
            run("cat made.txt"),
            run('read line; echo "heard $line"; test -t 0 && echo tty', tty=True, yield_time_ms=500),
            ModelStep.respond(answer_it),
            run(host.command),
            [assistant_message("done")],
        ]
    )
    manifest = Manifest(entries={"given.txt": File(content=b"from the manifest\n")})
    agent = SandboxAgent(name="coder", model=model, capabilities=[Shell(), Filesystem()], default_manifest=manifest)
    mark = {"agent": f"of-{kind.value}"}
    options = E2BSandboxClientOptions(
        sandbox_type=kind, timeout=600, envs={"TOLD": "told"}, metadata=mark, on_timeout="kill", **CLOSED
    )
    config = RunConfig(sandbox=SandboxRunConfig(client=E2BSandboxClient(), options=options))
    ended = Runner.run_sync(agent, "Go on.", run_config=config)
    ran, _, made, waits, typed, where = answers(ended)
    assert "exited with code 3" in ran
    # The two streams have no order between them.
    assert sorted(printed(ran).splitlines()) == sorted([ROOT, "from the manifest", "told", "to the other"])
    assert printed(made) == "one\ntwo"
    assert "session ID" in waits and "heard a word" in typed and "\ntty" in typed.replace("\r", "")
    host.is_elsewhere(printed(where))
    assert ended.final_output == "done"
    model.assert_complete()
    left = Sandbox.list().next_items()
    assert not [box for box in left if box.metadata == mark], "the end of the run is the sandbox's"


def test_a_workspace_is_kept_and_goes_on_in_another_box(tmp_path):
    async def go():
        client = E2BSandboxClient()
        options = E2BSandboxClientOptions(sandbox_type=E2BSandboxType.E2B, timeout=600, on_timeout="kill", **CLOSED)
        kept = LocalSnapshotSpec(base_path=tmp_path)
        first = await client.create(manifest=Manifest(), options=options, snapshot=kept)
        async with first:
            await first.write(Path("data"), io.BytesIO(bytes(range(256)) * 64))
            assert (await first.exec("mkdir -p deep && mv data deep/ && chmod 700 deep/data")).exit_code == 0
        before = first.state.sandbox_id
        second = await client.resume(first.state)
        async with second:
            read = (await second.read(Path("deep/data"))).read()
            mode = await second.exec("stat -c %a deep/data")
            assert read == bytes(range(256)) * 64 and mode.stdout == b"700\n"
            return before, second.state.sandbox_id

    before, after = asyncio.run(go())
    assert before != after


def test_the_whole_internet_is_neither_given_nor_taken_away_silently():
    options = E2BSandboxClientOptions(sandbox_type=E2BSandboxType.E2B)
    with pytest.raises(SandboxException, match="dangerously-open"):
        asyncio.run(E2BSandboxClient().create(options=options))
