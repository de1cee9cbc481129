"""apt and dpkg, with a repository of this test."""

import subprocess

from conftest import built, executable, needs
from e2b import Sandbox, Template

CONTROL = """Package: here-tool
Version: 1.2.3
Architecture: all
Maintainer: nobody <nobody@example.com>
Depends: bash
Description: says where it is
"""
POSTINST = """#!/bin/sh
set -e
getent group here-group >/dev/null || addgroup --system here-group
echo "configured $1" > /var/lib/here-tool
"""


def test_apt_installs_a_package_with_its_scripts_and_its_users(tmp_path):
    needs("dpkg-deb", "dpkg-scanpackages")
    package, repo = tmp_path / "package", tmp_path / "repo"
    repo.mkdir()
    executable(package / "usr/bin/here-tool", "#!/bin/bash\necho from a package\n")
    executable(package / "DEBIAN/postinst", POSTINST)
    (package / "DEBIAN/control").write_text(CONTROL)
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", package, repo / "here-tool.deb"], check=True, stdout=subprocess.DEVNULL)
    listed = subprocess.run(["dpkg-scanpackages", "."], cwd=repo, check=True, capture_output=True).stdout
    (repo / "Packages").write_bytes(listed)
    template = (
        Template(file_context_path=str(tmp_path))
        .from_image("tiny")
        .copy("repo", "/opt/repo")
        .run_cmd(
            "echo 'deb [trusted=yes] file:/opt/repo ./' > /etc/apt/sources.list",
            user="root",
        )
        .apt_install("here-tool")
    )
    called, said = built(template)
    with Sandbox.create(called, timeout=600) as box:
        assert box.commands.run("here-tool").stdout == "from a package\n"
        assert box.files.read("/var/lib/here-tool") == "configured configure\n"
        shown = box.commands.run("dpkg-query -W -f '${Version} ${Status}' here-tool; getent group here-group").stdout
        assert shown.startswith("1.2.3 install ok installed") and "here-group" in shown
    with Sandbox.create("tiny", timeout=600) as box:
        assert not box.files.exists("/usr/bin/here-tool"), "the operator's image is as it was"
