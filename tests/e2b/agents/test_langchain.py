"""LangChain: an agent with a tool that runs code, and a deep agent whose files and shell are a sandbox (E2B's `langchain-e2b`)."""

import asyncio

import pytest
from deepagents import create_deep_agent
from e2b import AsyncSandbox
from e2b import Sandbox as PlainSandbox
from e2b_code_interpreter import Sandbox
from langchain.agents import create_agent
from langchain.tools import tool
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_e2b import AsyncE2BSandbox, E2BSandbox


class Script(BaseChatModel):
    """Calls one tool after the other, and then says what the last one answered."""

    calls: list

    @property
    def _llm_type(self):
        return "script"

    def bind_tools(self, tools, **_):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **_):
        if self.calls:
            name, words = self.calls.pop(0)
            said = AIMessage("", tool_calls=[{"name": name, "args": words, "id": f"call-{len(messages)}"}])
        else:
            said = AIMessage(messages[-1].text)
        return ChatResult(generations=[ChatGeneration(message=said)])


ASKED = {"messages": [{"role": "user", "content": "Go on."}]}


def answers(ended):
    """What the tools answered, in order."""
    return [said.text for said in ended["messages"] if isinstance(said, ToolMessage)]


@pytest.fixture
def run_python():
    """The tool as E2B's own examples for LangChain have it."""
    with Sandbox.create(timeout=600) as box:

        @tool
        def run_python(code: str) -> str:
            """Runs Python in a notebook, and answers with what it printed, its value, or its exception."""
            ran = box.run_code(code)
            if ran.error:
                return f"{ran.error.name}: {ran.error.value}"
            return "".join(ran.logs.stdout) + (ran.text or "")

        yield run_python


def test_an_agent_calls_a_tool_that_runs_code_in_a_box(host, run_python):
    script = ["kept = 6 * 7\nprint('kept', kept)", "kept / 0", f"{host.where}where['kept'] = kept\nprint(json.dumps(where))"]
    model = Script(calls=[("run_python", {"code": code}) for code in script])
    ended = create_agent(model, tools=[run_python]).invoke(ASKED)
    first, second, where = answers(ended)
    assert (first, second) == ("kept 42\n", "ZeroDivisionError: division by zero")
    assert ended["messages"][-1].text == where
    assert '"kept": 42' in where
    host.is_elsewhere(where)


#: What a deep agent does with its tools for files and its shell, all of which are the sandbox.
DEEP = [
    ("write_file", {"file_path": "/home/user/work/note.txt", "content": "one\ntwo\n"}),
    ("edit_file", {"file_path": "/home/user/work/note.txt", "old_string": "two", "new_string": "three"}),
    ("read_file", {"file_path": "/home/user/work/note.txt"}),
    ("ls", {"path": "/home/user/work"}),
    ("grep", {"pattern": "three", "path": "/home/user/work", "output_mode": "content"}),
    ("glob", {"pattern": "*.txt", "path": "/home/user/work"}),
    ("execute", {"command": "pwd; cat work/note.txt; echo to the other >&2; exit 3"}),
]


def check_deep(ended, host):
    wrote, edited, read, listed, found, globbed, ran, where = answers(ended)
    assert "/home/user/work/note.txt" in wrote and "/home/user/work/note.txt" in edited
    assert "one" in read and "three" in read and "two" not in read
    assert "note.txt" in listed and "three" in found and "note.txt" in globbed
    assert "/home/user\none\nthree\n" in ran and "to the other" in ran and "exit code 3" in ran
    host.is_elsewhere(where[: where.index("}") + 1])


def test_a_deep_agent_works_in_a_box(host):
    with PlainSandbox.create(timeout=600) as box:
        backend = E2BSandbox(sandbox=box)
        model = Script(calls=[*DEEP, ("execute", {"command": host.command})])
        check_deep(create_deep_agent(model, backend=backend).invoke(ASKED), host)
        # Byte for byte, past the tools.
        data = bytes(range(256)) * 100
        assert [put.error for put in backend.upload_files([("/home/user/deep/er/data", data)])] == [None]
        got, missing, directory = backend.download_files(["/home/user/deep/er/data", "/home/user/not", "/home/user/deep"])
        assert (got.content, missing.error, directory.error) == (data, "file_not_found", "is_directory")
        assert backend.execute("sleep 600", timeout=1).exit_code == 124


def test_a_deep_agent_works_in_a_box_asynchronously(host):
    async def go():
        async with await AsyncSandbox.create(timeout=600) as box:
            model = Script(calls=[*DEEP, ("execute", {"command": host.command})])
            return await create_deep_agent(model, backend=AsyncE2BSandbox(sandbox=box)).ainvoke(ASKED)

    check_deep(asyncio.run(go()), host)
