"""A daemon whose operator wants no secrets has none, and says by which section."""

import pytest
from e2b import Sandbox, SandboxException, Secret
from e2b.exceptions import SecretException


def test_there_are_none_and_the_section_is_named():
    for call in (
        lambda: Secret.create("s", "sk-real-value"),
        lambda: Secret.list().next_items(),
        lambda: Secret.get_info("s"),
        lambda: Secret.update("s", "sk-real-value"),
        lambda: Secret.destroy("s"),
    ):
        with pytest.raises(SecretException, match=r"403.*\[e2b\.secrets\]") as no:
            call()
        assert "sk-real" not in str(no.value)
    rules = {"a.test": [{"transform": {"headers": {"X-Key": Secret.fill("s")}}}]}
    with pytest.raises(SandboxException, match=r"403.*\[e2b\.secrets\]"):
        Sandbox.create(timeout=60, network={"allow_out": ["a.test"], "rules": rules})
