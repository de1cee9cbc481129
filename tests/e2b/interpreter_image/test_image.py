"""What the note asks of the image `code-interpreter-v1`, of the one that `blastbox image make code-interpreter` has made."""

from e2b import Sandbox as Plain
from e2b_code_interpreter import Sandbox


def test_the_image_has_what_clients_expect():
    with Sandbox.create(timeout=600) as box:
        assert box.get_info().template_id == "code-interpreter-v1"
        words = "id -un; id -u; pwd; test -x /bin/bash; . /etc/os-release; echo $ID"
        assert box.commands.run(words).stdout.split() == ["user", "1000", "/home/user", "debian"]
        for program in "python3 python pip node git curl ss pgrep adduser userdel".split():
            assert box.commands.run(f"PATH=$PATH:/usr/sbin command -v {program}").stdout, program
        assert box.commands.run("command -v mcp-gateway || echo none").stdout == "none\n"
        assert box.commands.run("git init -q repo && git -C repo status --short && echo fine").stdout == "fine\n"


def test_code_has_its_packages():
    with Sandbox.create(timeout=600) as box:
        ran = box.run_code("import ipykernel, numpy, pandas, matplotlib; numpy.arange(4).sum() + len(pandas.DataFrame({'a': [1, 2]}))")
        assert ran.error is None and ran.text == "8"
        drawn = box.run_code("import matplotlib.pyplot as plt; plt.plot([1, 2, 3]); plt.show()")
        assert drawn.error is None and drawn.results[0].png
        assert box.run_code("process.version", language="js").text.startswith("v")
        assert "bash" in "".join(box.run_code("echo $BASH", language="bash").logs.stdout)


def test_the_template_is_also_had_by_the_name_of_its_image():
    with Plain.create("code-interpreter", timeout=600) as box:
        assert box.commands.run("python -c 'print(6 * 7)'").stdout == "42\n"
