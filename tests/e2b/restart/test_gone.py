"""After a daemon that was killed: what ran is over, and nobody is told otherwise."""

import json
import os
from pathlib import Path

import pytest
from e2b import Sandbox, SandboxNotFoundException

KEPT = json.loads(Path(os.environ["E2B_KEPT"]).read_text())


def test_what_ran_is_gone_for_every_question():
    assert Sandbox.list().next_items() == []
    for sandbox, _ in KEPT:
        assert not Sandbox.kill(sandbox)
        for question in Sandbox.get_info, Sandbox.connect:
            with pytest.raises(SandboxNotFoundException):
                question(sandbox)
    with Sandbox.create(os.environ["E2B_TEMPLATE"], timeout=600) as box:
        assert box.commands.run("echo new").stdout == "new\n"
