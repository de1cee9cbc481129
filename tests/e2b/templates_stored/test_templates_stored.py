"""Templates on a small image of the store, which has a shell and little else; what steps made is read as files."""

import uuid

import pytest
from e2b import BuildException, Sandbox, Template


def name():
    return "t-" + uuid.uuid4().hex[:12]


@pytest.fixture
def context(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main").write_text("of the app\n")
    return tmp_path


def template(context, last="true"):
    built = Template(file_context_path=str(context)).from_image("small").copy("app", "/home/user/app").set_workdir("app")
    return built.run_cmd("cat main main > twice; id -u > ../who").run_cmd(last)


def test_steps_are_used_again_where_everything_is_the_same(context):
    said, first, second = [], name(), name()
    Template.build(template(context), first, on_build_logs=lambda entry: said.append(entry.message))
    assert "as before" not in said
    with Sandbox.create(first, timeout=60) as sandbox:
        assert sandbox.files.read("/home/user/who") == "1000\n"
        assert sandbox.files.read("/home/user/app/twice") == "of the app\nof the app\n"
    said.clear()
    Template.build(template(context, last="rm ../who"), second, on_build_logs=lambda entry: said.append(entry.message))
    assert said.count("as before") == 2, said
    with Sandbox.create(second, timeout=60) as sandbox:
        assert not sandbox.files.exists("/home/user/who") and sandbox.files.exists("/home/user/app/twice")
    with Sandbox.create(first, timeout=60) as sandbox:
        assert sandbox.files.exists("/home/user/who"), "a template is not changed by another"
    said.clear()
    Template.build(template(context), name(), skip_cache=True, on_build_logs=lambda entry: said.append(entry.message))
    assert "as before" not in said
    (context / "app" / "main").write_text("changed\n")
    Template.build(template(context), name(), on_build_logs=lambda entry: said.append(entry.message))
    assert "as before" not in said, "other files are another step"


def test_a_step_that_fails_leaves_nothing(context):
    with pytest.raises(BuildException, match="code 9"):
        Template.build(template(context, last="exit 9"), name())
