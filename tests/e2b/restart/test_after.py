"""After it: the next daemon, and the same sandboxes, by every way that the SDK has to them."""

import asyncio
import json
import os
import urllib.request
from pathlib import Path

import pytest
from e2b import AsyncSandbox, Sandbox, SandboxNotFoundException, SandboxState

(ONE, ADDRESS), (OTHER, _) = json.loads(Path(os.environ["E2B_KEPT"]).read_text())

def test_they_are_listed_as_they_were():
    listed = {ours.sandbox_id: ours for ours in Sandbox.list().next_items()}
    assert set(listed) == {ONE, OTHER}
    for ours in listed.values():
        assert (ours.state, ours.metadata, ours.template_id) == (SandboxState.PAUSED, {"made": "before"}, os.environ["E2B_TEMPLATE"])
    info = Sandbox.get_info(ONE)
    assert info.state == SandboxState.PAUSED and info.lifecycle == {"on_timeout": "pause", "auto_resume": True}


def test_a_signed_address_from_before_still_works_and_wakes_it():
    # The daemon's port is another one in these tests; the signature is what counts.
    with urllib.request.urlopen(os.environ["E2B_SANDBOX_URL"] + "/files?" + ADDRESS.split("?")[1]) as answer:
        assert answer.read() == b"as it was"
    assert Sandbox.get_info(ONE).state == SandboxState.RUNNING


def test_connect_goes_on_where_it_was():
    box = Sandbox.connect(OTHER, timeout=600)
    assert box.commands.run("cat note; echo $WORD").stdout == "as it waskept\n"
    running = [process for process in box.commands.list() if "while" in " ".join(process.args)]
    assert len(running) == 1
    assert box.commands.kill(running[0].pid)
    assert box.pause() and not box.pause()
    assert box.connect(timeout=600).commands.run("cat note").stdout == "as it was"


def test_the_same_asynchronously_and_both_are_killed():
    async def all_of_it():
        box = await AsyncSandbox.connect(ONE, timeout=600)
        assert (await box.commands.run("echo $WORD")).stdout == "kept\n"
        assert await box.kill()

    asyncio.run(all_of_it())
    assert Sandbox.kill(OTHER) and not Sandbox.kill(OTHER)
    assert Sandbox.list().next_items() == []
    with pytest.raises(SandboxNotFoundException):
        Sandbox.get_info(ONE)
