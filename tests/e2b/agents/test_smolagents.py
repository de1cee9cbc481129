"""smolagents: a CodeAgent with the framework's own executor for E2B (`executor_type="e2b"`)."""

import pytest
from e2b_code_interpreter import Sandbox
from PIL.Image import Image
from smolagents import ChatMessage, CodeAgent, MessageRole, Model, tool

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Script(Model):
    """Says one piece of code after the other, and keeps what it was told before each."""

    def __init__(self, *pieces):
        super().__init__(model_id="script")
        self.pieces, self.heard = list(pieces), []

    def generate(self, messages, stop_sequences=None, response_format=None, tools_to_call_from=None, **_):
        self.heard.append("\n".join(part["text"] for said in messages for part in said.content if part["type"] == "text"))
        said = f"Thought: on it.\n<code>\n{self.pieces.pop(0)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=said)


@tool
def doubled(number: int) -> int:
    """Doubles a number.

    Args:
        number: what to double
    """
    import os

    assert os.path.expanduser("~") == "/home/user"
    return 2 * number


def test_an_agent_thinks_in_code_and_the_code_runs_in_a_box(host):
    model = Script(
        "kept = doubled(given['number'])\nprint('doubled:', kept)",
        "open('/home/user/note', 'w').write(str(kept))\nkept / 0",
        f"{host.where}final_answer({{'kept': kept, 'note': open('/home/user/note').read(), 'where': where}})",
    )
    with CodeAgent(tools=[doubled], model=model, executor_type="e2b", max_steps=4, verbosity_level=0) as agent:
        box = agent.python_executor.sandbox
        assert isinstance(box, Sandbox) and box.is_running()
        answer = agent.run("Double it.", additional_args={"given": {"number": 21}})
    # What was defined, printed and raised in one step is there in the next, and the tool itself ran in the box.
    assert "doubled: 42" in model.heard[1]
    assert "ZeroDivisionError" in model.heard[2] and "division by zero" in model.heard[2]
    assert (answer["kept"], answer["note"]) == (42, "42")
    host.is_elsewhere(answer["where"])
    assert not box.is_running(), "the agent's end is the sandbox's"


def test_what_an_answer_may_be_comes_back_as_it_was():
    model = Script(
        "from datetime import date\nfrom decimal import Decimal\n"
        "final_answer({'set': {1, 2}, 'pair': (1, 'two'), 'bytes': b'\\x00\\xff', 'day': date(2026, 1, 2), 'money': Decimal('1.10')})"
    )
    with CodeAgent(tools=[], model=model, executor_type="e2b", verbosity_level=0) as agent:
        answer = agent.run("Answer.")
    assert answer["set"] == {1, 2} and answer["pair"] == (1, "two") and answer["bytes"] == b"\x00\xff"
    assert (str(answer["day"]), str(answer["money"])) == ("2026-01-02", "1.10")


def test_a_picture_comes_back_as_a_picture():
    model = Script("final_answer('unused')")
    with CodeAgent(tools=[], model=model, executor_type="e2b", verbosity_level=0) as agent:
        code = f"import base64\nfrom IPython.display import Image\nImage(data=base64.b64decode('{PIXEL}'))"
        picture = agent.python_executor(code).output
        assert isinstance(picture, Image) and picture.size == (1, 1)


def test_the_executor_hands_its_words_on_to_the_sandbox():
    model = Script("import os\nfinal_answer(os.environ['TOLD'])")
    words = {"envs": {"TOLD": "by the agent"}, "timeout": 300, "metadata": {"agent": "smol"}}
    with CodeAgent(tools=[], model=model, executor_type="e2b", executor_kwargs=words, verbosity_level=0) as agent:
        assert agent.python_executor.sandbox.get_info().metadata == {"agent": "smol"}
        assert agent.run("Say.") == "by the agent"


def test_what_the_daemon_refuses_is_told():
    with pytest.raises(Exception, match="no-such-template"):
        words = {"template": "no-such-template"}
        CodeAgent(tools=[], model=Script(), executor_type="e2b", executor_kwargs=words, verbosity_level=0)
