"""Sandboxes that have no root: the operator wants none, or the daemon is no root's. Everything else is as ever."""

import pytest
from e2b import AuthenticationException, CommandExitException, Sandbox


def test_root_is_nobody_and_there_is_no_sudo():
    with Sandbox.create(timeout=600) as box:
        with pytest.raises(AuthenticationException, match="invalid username: 'root'"):
            box.commands.run("id", user="root")
        message = "error looking up user 'root': user: unknown user root"
        with pytest.raises(AuthenticationException, match=message):
            box.files.read("/tmp/none", user="root")
        assert box.commands.run("test -e /.blastbox/sudo || echo none").stdout == "none\n"
        with pytest.raises(CommandExitException):
            box.commands.run("sudo -n id")
        assert box.commands.run("id -u; grep CapBnd /proc/self/status").stdout.split() == ["1000", "CapBnd:", "0" * 16]
