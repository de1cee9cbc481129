"""pip in a sandbox, by command and by the `!` word of code, from files alone: nothing outside is asked."""

import io
import zipfile

import pytest
from e2b_code_interpreter import Sandbox

NAME = "greet-1.0-py3-none-any.whl"
FROM = "--user --break-system-packages --no-index --find-links /home/user/wheels"

# A kernel that runs already does not look again where a user's packages are.
FOUND = "import site, sys; sys.path.append(site.getusersitepackages()); import greet; greet.greeting()"


def wheel():
    """A package of one file, as pip wants it."""
    files = {
        "greet.py": "def greeting():\n    return 'installed'\n",
        "greet-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n",
        "greet-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files["greet-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in [*files, "greet-1.0.dist-info/RECORD"])
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return packed.getvalue()


@pytest.fixture
def box():
    sandbox = Sandbox.create(timeout=300)
    if sandbox.commands.run("python3 -m pip --version || echo none").stdout == "none\n":
        sandbox.kill()
        pytest.skip("the host's Python has no pip (package python3-pip)")
    sandbox.files.write(f"/home/user/wheels/{NAME}", wheel())
    yield sandbox
    sandbox.kill()


def test_pip_installs_what_later_commands_and_code_have(box):
    said = box.commands.run(f"python3 -m pip install {FROM} greet").stdout
    assert "Successfully installed greet-1.0" in said
    assert box.commands.run("python3 -c 'import greet; print(greet.greeting())'").stdout == "installed\n"
    assert box.run_code(FOUND).text == "installed"


def test_the_word_pip_of_code_installs_for_the_code_after_it(box):
    ran = box.run_code(f"!python3 -m pip install {FROM} greet")
    assert ran.error is None and "Successfully installed greet-1.0" in "".join(ran.logs.stdout)
    assert box.run_code(FOUND).text == "installed"


def test_what_is_not_there_is_told_and_nothing_is_asked_outside(box):
    ran = box.run_code("!python3 -m pip install --user --break-system-packages --retries 0 --timeout 2 greet")
    said = "".join(ran.logs.stdout + ran.logs.stderr)
    assert "No matching distribution" in said, said
