"""E2B's published SDK against a daemon that is already running: E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY say where."""

import os
import time

import pytest
from e2b import Sandbox, SandboxException

URL = os.environ["E2B_API_URL"]

#: Nothing is asserted with it: what needs it has hung.
PATIENCE = 60


@pytest.fixture
def box():
    sandbox = Sandbox.create(timeout=600)
    yield sandbox
    sandbox.kill()


@pytest.fixture(scope="module")
def shared():
    """One sandbox for tests that leave it as it was."""
    sandbox = Sandbox.create(timeout=600, envs={"SHARED": "from the sandbox"})
    yield sandbox
    sandbox.kill()


def until(found):
    """Asks again and again until there is an answer."""
    begun = time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        answer = found()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"it never came: {found}")


def paused_or_skip(pause):
    """Pauses, or skips where this host freezes nothing."""
    try:
        return pause()
    except SandboxException as error:
        if "could not be paused" in str(error):
            pytest.skip("this host freezes no box")
        raise
