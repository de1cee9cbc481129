"""Before the daemon ends: sandboxes that outlive it. What they are called is written down for `test_after.py`."""

import json
import os
from pathlib import Path

from e2b import Sandbox

KEPT = Path(os.environ["E2B_KEPT"])
TEMPLATE = os.environ["E2B_TEMPLATE"]


def test_one_that_runs_or_lies_on_disk_when_the_daemon_ends():
    more = {"metadata": {"made": "before"}, "envs": {"WORD": "kept"}, "lifecycle": {"on_timeout": "pause", "auto_resume": True}}
    boxes = [Sandbox.create(TEMPLATE, timeout=1200, **more) for _ in range(2)]
    for box in boxes:
        box.files.write("note", "as it was")
        if os.environ["E2B_PAUSED"] == "yes":
            box.commands.run("while :; do sleep 1; done", background=True)
            assert box.pause()
    KEPT.write_text(json.dumps([[box.sandbox_id, box.download_url("note")] for box in boxes]))
