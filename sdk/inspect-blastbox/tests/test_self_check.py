"""inspect-ai's own checks of a provider, against a daemon that is already running: BLASTBOX_SOCKET says where, BLASTBOX_IMAGE on what."""

import os

import pytest_asyncio
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from inspect_blastbox import BlastboxEnvironment


@pytest_asyncio.fixture(scope="function")
async def sandbox_env():
    environment = await BlastboxEnvironment.make(os.environ.get("BLASTBOX_IMAGE"))
    yield environment
    await environment.close()
