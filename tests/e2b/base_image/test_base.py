"""What E2B's users expect of `base`, of the image that `blastbox image make base` has made, through a daemon whose operator said nothing."""

import pytest
from e2b import CommandExitException, Sandbox


@pytest.fixture(scope="module")
def box():
    with Sandbox.create(timeout=600) as sandbox:
        yield sandbox


def test_its_user_and_its_programs(box):
    assert box.get_info().template_id == "base"
    words = "id -un; id -u; pwd; echo $HOME; . /etc/os-release; echo $ID; getent passwd user | cut -d: -f6,7"
    said = box.commands.run(words).stdout.split()
    assert said == ["user", "1000", "/home/user", "/home/user", "debian", "/home/user:/bin/bash"]
    for program in "bash sudo python3 python pip pip3 node git curl wget unzip ss pgrep".split():
        assert box.commands.run(f"command -v {program}").stdout, program


def test_its_programs_work(box):
    assert box.commands.run("python -c 'import ssl, sqlite3, venv; print(6 * 7)'").stdout == "42\n"
    assert box.commands.run("pip --version").stdout.startswith("pip ")
    assert box.commands.run("node -e 'console.log(6 * 7)'").stdout == "42\n"
    assert box.commands.run("git init -q repo && git -C repo status --short && echo fine").stdout == "fine\n"
    assert box.commands.run("python3 -m venv --without-pip env && env/bin/python -c 'print(1)'").stdout == "1\n"


def test_sudo_changes_the_system_of_this_box_alone(box):
    assert box.commands.run("sudo id -u").stdout == "0\n"
    box.commands.run("echo 'echo mine' | sudo tee /usr/local/bin/mine && sudo chmod 755 /usr/local/bin/mine")
    box.commands.run("sudo useradd --create-home ann")
    assert box.commands.run("mine; sudo -u ann id -un").stdout == "mine\nann\n"
    assert box.commands.run("cat /etc/shadow | wc -l", user="root").stdout.strip() != "0"
    with pytest.raises(CommandExitException):
        box.commands.run("cat /etc/shadow")
    with Sandbox.create(timeout=600) as other, pytest.raises(CommandExitException):
        other.commands.run("mine")
