"""OpenAI's Agents SDK: an agent with a function tool that runs code."""

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.items import ToolCallOutputItem
from agents.testing import ScriptedModel, assistant_message, function_call
from e2b_code_interpreter import Sandbox

set_tracing_disabled(True)


def test_an_agent_calls_a_function_that_runs_code_in_a_box(host):
    with Sandbox.create(timeout=600) as box:

        @function_tool
        def run_python(code: str) -> str:
            """Runs Python in a notebook."""
            ran = box.run_code(code)
            return f"{ran.error.name}: {ran.error.value}" if ran.error else "".join(ran.logs.stdout) + (ran.text or "")

        pieces = ["kept = 6 * 7\nkept", "kept / 0", f"{host.where}where['kept'] = kept\nprint(json.dumps(where))"]
        calls = [[function_call("run_python", {"code": code}, call_id=code)] for code in pieces]
        model = ScriptedModel([*calls, [assistant_message("done")]])
        ended = Runner.run_sync(Agent(name="coder", model=model, tools=[run_python]), "Go on.")
    value, error, where = [item.output for item in ended.new_items if isinstance(item, ToolCallOutputItem)]
    assert (value, error, ended.final_output) == ("42", "ZeroDivisionError: division by zero", "done")
    assert '"kept": 42' in where
    host.is_elsewhere(where)
    model.assert_complete()
