"""Between the two: a daemon whose operator lets no sandbox reach everything any more. What reached it stays where it lies."""

import json
import os
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from e2b import Sandbox, SandboxException, SandboxState

KEPT = json.loads(Path(os.environ["E2B_KEPT"]).read_text())


def test_nobody_wakes_one_that_reached_everything():
    for sandbox, address in KEPT:
        with pytest.raises(SandboxException, match="the operator lets none do that any more"):
            Sandbox.connect(sandbox, timeout=600)
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(os.environ["E2B_SANDBOX_URL"] + "/files?" + address.split("?")[1])
        assert Sandbox.get_info(sandbox).state == SandboxState.PAUSED
