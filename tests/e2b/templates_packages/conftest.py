"""Real package managers in steps of root, with packages of these tests. Nothing goes out."""

import shutil
import uuid

import pytest
from e2b import Template


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"there is no {program}")


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def built(template, **more):
    called, said = "t-" + uuid.uuid4().hex[:12], []
    Template.build(template, called, on_build_logs=lambda entry: said.append(entry.message), memory_mb=2048, **more)
    return called, said
