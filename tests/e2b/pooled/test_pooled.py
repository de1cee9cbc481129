"""E2B's published code interpreter SDK against a daemon whose pool members have a Python kernel running before anybody asks for them."""

import asyncio
import os
import re
import time
import urllib.request

import pytest
from e2b_code_interpreter import AsyncSandbox, Sandbox

#: Nothing is asserted with it: what needs it has hung.
PATIENCE = 120

#: Every process of the box whose words have the kernel's first line in them.
KERNELS = r"""
for at in /proc/[0-9]*; do
  if tr '\0' ' ' <$at/cmdline 2>/dev/null | grep -q 'The kernel of one [c]ontext'; then echo ${at#/proc/}; fi
done
"""


@pytest.fixture(autouse=True)
def a_member_waits():
    """The daemon says itself how many boxes wait in its pool."""
    asked = urllib.request.Request(os.environ["E2B_API_URL"] + "/metrics", headers={"Authorization": "Bearer " + os.environ["E2B_API_KEY"]})
    until = time.monotonic() + PATIENCE
    while True:
        with urllib.request.urlopen(asked) as answer:
            said = re.search(r"^blastbox_pool_boxes (\d+)", answer.read().decode(), re.M)
        if int(said.group(1)) >= 2:
            return
        assert time.monotonic() < until, "no member of the pool gets ready"
        time.sleep(0.05)


def kernels(sandbox):
    return sandbox.commands.run(KERNELS).stdout.split()


def test_a_kernel_runs_before_any_code_was_sent_and_is_the_one_that_runs_it():
    with Sandbox.create(timeout=120) as sandbox:
        [pid] = kernels(sandbox)
        assert sandbox.run_code("import os; os.getpid()").text == pid
        assert kernels(sandbox) == [pid]


def test_it_counts_from_one_and_knows_nothing_of_anybody():
    with Sandbox.create(timeout=120) as sandbox:
        ran = sandbox.run_code("sorted(name for name in dir() if not name.startswith('_'))")
        assert ran.execution_count == 1
        # What IPython puts there itself, in one version or another.
        assert set(eval(ran.text)) <= {"In", "Out", "exit", "get_ipython", "open", "quit"}
        assert sandbox.run_code("import os; os.getcwd()").text == "/home/user"
        assert {entry.name for entry in sandbox.files.list("/home/user")} <= {".ipython"}


def test_variables_of_the_sandbox_are_there_in_its_first_code_and_in_what_that_starts():
    with Sandbox.create(timeout=120, envs={"OF_THE_BOX": "there"}) as sandbox:
        [pid] = kernels(sandbox)
        asked = "import os; os.getpid(), os.environ['OF_THE_BOX'], os.environ['E2B_SANDBOX_ID'], os.environ.get('OF_THE_CALL')"
        told = sandbox.run_code(asked, envs={"OF_THE_CALL": "here"}).text
        assert told == f"({pid}, 'there', '{sandbox.sandbox_id}', 'here')"
        assert sandbox.run_code(asked).text == f"({pid}, 'there', '{sandbox.sandbox_id}', None)"
        assert "".join(sandbox.run_code("!echo $OF_THE_BOX $E2B_TEMPLATE_ID").logs.stdout).split() == ["there", "code-interpreter-v1"]


def test_variables_that_an_interpreter_reads_when_it_starts_get_one_of_their_own():
    with Sandbox.create(timeout=120, envs={"PYTHONPATH": "/tmp/more", "TZ": "Asia/Tokyo"}) as sandbox:
        before = kernels(sandbox)
        told = sandbox.run_code("import os, sys, time; os.getpid(), '/tmp/more' in sys.path, time.tzname[0]").text
        pid = re.match(r"\((\d+), True, 'JST'\)$", told).group(1)
        assert pid not in before


def test_no_two_draw_the_same_numbers_and_each_has_its_own_name_and_the_present_time():
    asked = "import random, socket, time; (random.random(), socket.gethostname(), int(time.time()))"
    drawn = []
    for _ in range(2):
        with Sandbox.create(timeout=120) as sandbox:
            assert len(kernels(sandbox)) == 1
            number, name, now = sandbox.run_code(asked).text.strip("()").split(", ")
            said = sandbox.commands.run("hostname; date +%s").stdout.split()
            assert name.strip("'") == said[0]
            assert abs(int(said[1]) - int(now)) < 60
            drawn.append(number)
    assert len(set(drawn)) == 2


def test_a_kernel_that_its_owner_ends_begins_anew():
    with Sandbox.create(timeout=120) as sandbox:
        [pid] = kernels(sandbox)
        sandbox.run_code("kept = 1")
        [context] = [context for context in sandbox.list_code_contexts() if context.language == "python"]
        sandbox.restart_code_context(context)
        again = sandbox.run_code("import os; (os.getpid(), 'kept' in dir())").text
        assert re.match(r"\(\d+, False\)$", again) and pid not in again


async def pooled_async():
    sandbox = await AsyncSandbox.create(timeout=120, envs={"OF_THE_BOX": "there"})
    try:
        pid = (await sandbox.commands.run(KERNELS)).stdout.strip()
        ran = await sandbox.run_code("import os; os.getpid(), os.environ['OF_THE_BOX']")
        assert ran.text == f"({pid}, 'there')"
    finally:
        await sandbox.kill()


def test_the_same_asynchronously():
    asyncio.run(pooled_async())
