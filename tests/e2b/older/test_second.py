"""e2b-code-interpreter 2.8: its `run_code` knows the names of sandboxes alone."""

import asyncio

from e2b_code_interpreter import AsyncSandbox, Sandbox


def test_code_runs_in_contexts_and_languages():
    # This version asks for the whole internet by itself.
    with Sandbox.create(timeout=600, allow_internet_access=False) as box:
        assert box.run_code("x = 20").error is None
        assert box.run_code("x + 22").text == "42"
        context = box.create_code_context(cwd="/tmp")
        assert box.run_code("import os; os.getcwd()", context=context).text == "/tmp"
        failed = box.run_code("1 / 0")
        assert failed.error.name == "ZeroDivisionError"
        assert box.run_code("[1, 2].length", language="js").text == "2"
        assert box.commands.run("echo hello").stdout == "hello\n"


def test_the_same_asynchronously():
    async def all_of_it():
        box = await AsyncSandbox.create(timeout=600, allow_internet_access=False)
        assert (await box.run_code("6 * 7")).text == "42"
        await box.kill()

    asyncio.run(all_of_it())
