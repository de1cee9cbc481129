"""A daemon whose operator has not asked for volumes has none, and says which section is missing."""

import pytest
from e2b import Sandbox, SandboxException, Volume
from e2b.exceptions import VolumeException


def test_there_are_none_and_the_section_is_named():
    for call in (lambda: Volume.create("v"), Volume.list, lambda: Volume.get_info("v"), lambda: Volume.destroy("v")):
        with pytest.raises(VolumeException, match=r"403.*\[e2b\.volumes\]"):
            call()
    with pytest.raises(SandboxException, match=r"403.*\[e2b\.volumes\]"):
        Sandbox.create(timeout=60, volume_mounts={"/mnt/v": "v"})
