"""npm, with a package of this test."""

import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import built, executable, needs
from e2b import Sandbox, Template


def test_npm_installs_a_package_for_everybody(tmp_path):
    needs("npm", "node")
    npm = Path(shutil.which("npm")).resolve().parent.parent
    if npm.name != "npm" or not (npm / "node_modules").is_dir():
        pytest.skip("npm of this host is not in one directory")
    shutil.copytree(npm, tmp_path / "npm", symlinks=True)
    shutil.copy(Path(shutil.which("node")).resolve(), tmp_path / "node")
    package = tmp_path / "package"
    executable(package / "cli.js", "#!/usr/bin/env node\nconsole.log('from npm', require('./lib'))\n")
    (package / "lib.js").write_text("module.exports = 7\n")
    (package / "package.json").write_text('{"name": "here-tool", "version": "1.0.0", "bin": {"here-npm": "cli.js"}}')
    packed = subprocess.run(["npm", "pack", "--silent", package], cwd=tmp_path, check=True, capture_output=True, text=True)
    (tmp_path / packed.stdout.strip()).rename(tmp_path / "here-tool.tgz")
    template = (
        Template(file_context_path=str(tmp_path))
        .from_image("tiny")
        .copy("node", "/usr/local/bin/node", mode=0o755)
        .copy("npm", "/usr/local/lib/node_modules/npm")
        .copy("here-tool.tgz", "/opt/here-tool.tgz")
        .run_cmd("ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm", user="root")
        .npm_install("/opt/here-tool.tgz", g=True)
    )
    called, said = built(template)
    with Sandbox.create(called, timeout=600) as box:
        assert box.commands.run("here-npm").stdout == "from npm 7\n"
        assert "here-tool@1.0.0" in box.commands.run("npm ls -g").stdout
