"""Steps of templates that are root of their boxes, on a small image of the store; what they made is read as files."""

import os
import uuid
from urllib.request import Request, urlopen

import pytest
from e2b import BuildException, Sandbox, Template


def name():
    return "t-" + uuid.uuid4().hex[:12]


@pytest.fixture
def context(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main").write_text("of the app\n")
    return tmp_path


def build(template, called=None, **more):
    """Builds it, and tells its name and what was said."""
    said, called = [], called or name()
    Template.build(template, called, on_build_logs=lambda entry: said.append(entry.message), **more)
    return called, said


def test_what_root_of_a_step_changes_is_in_the_template():
    template = (
        Template()
        .from_image("small")
        .run_cmd("id -u > /opt/who; mkdir -p /etc/conf && echo 1 > /etc/conf/a; echo $HOME $USER > /opt/home", user="root")
        .run_cmd("echo secret > /home/user/by-root && chmod 600 /home/user/by-root; rm /usr/bin/ls", user="root")
        .run_cmd("cat /opt/who /etc/conf/a /home/user/by-root > seen; id -u >> seen")
    )
    called, _ = build(template)
    with Sandbox.create(called, timeout=60) as sandbox:
        assert sandbox.files.read("/opt/who") == "0\n" and sandbox.files.read("/opt/home") == "/root root\n"
        # Its user's again in the next step: the home belongs to nobody else.
        assert sandbox.files.read("/home/user/seen") == "0\n1\nsecret\n1000\n"
        assert not sandbox.files.exists("/usr/bin/ls") and sandbox.files.exists("/usr/bin/cat")
        with pytest.raises(Exception, match="permission|denied|403|read-only"):
            sandbox.files.write("/opt/who", "mine")
    with Sandbox.create("small", timeout=60) as sandbox:
        assert sandbox.files.exists("/usr/bin/ls") and not sandbox.files.exists("/opt/who"), "the image is as it was"


def test_nothing_that_root_leaves_has_power_over_anything():
    template = (
        Template()
        .from_image("small")
        .run_cmd("cp /usr/bin/busybox /opt/set-id && chmod 6755 /opt/set-id && mkfifo /opt/pipe", user="root")
        .run_cmd("if mknod /opt/device c 1 3; then exit 8; fi; if mount -t tmpfs x /opt; then exit 9; fi", user="root")
        .run_cmd("echo x > /opt/owned && chown 1000:1000 /opt/owned && chmod 666 /opt/owned", user="root")
        .run_cmd("test ! -e /dev/sda && ln -s /etc/shadow /opt/link", user="root")
    )
    called, said = build(template)
    assert any("left out" in line for line in said), said
    with Sandbox.create(called, timeout=60) as sandbox:
        assert sandbox.files.get_info("/opt/set-id").mode & 0o7777 == 0o755
        assert not sandbox.files.exists("/opt/pipe") and not sandbox.files.exists("/opt/device")
        owned = sandbox.files.get_info("/opt/owned")
        assert owned.owner != "user" and owned.mode & 0o7777 == 0o644, "owners do not come along, nor what everybody may write"


def test_directories_and_copies_are_where_they_are_wanted(context):
    template = (
        Template(file_context_path=str(context))
        .from_image("small")
        .copy("app", "/app")
        .copy("app/main", "/usr/share/app/", user="root", mode=0o755)
        .set_workdir("/srv/work")
        .make_dir("/opt/a/b", user="root")
        .rename("/app/main", "/app/first", user="root")
        .make_symlink("/app/first", "/opt/a/b/link", user="root")
        .remove("/opt/gone", force=True, user="root")
        .run_cmd("pwd > /home/user/where; cat /opt/a/b/link >> /home/user/where")
    )
    called, _ = build(template)
    with Sandbox.create(called, timeout=60) as sandbox:
        assert sandbox.files.read("/home/user/where") == "/srv/work\nof the app\n"
        assert sandbox.files.read("/app/first") == sandbox.files.read("/usr/share/app/main") == "of the app\n"
        assert sandbox.files.get_info("/usr/share/app/main").mode & 0o777 == 0o755


def test_steps_of_root_are_used_again_and_other_templates_stand_on_them():
    template = Template().from_image("small").run_cmd("cat /proc/self/stat > /opt/id", user="root").run_cmd("cat /opt/id > id")
    first, said = build(template)
    assert "as before" not in said
    second, said = build(template)
    assert said.count("as before") == 2, said
    third, _ = build(Template().from_template(first).run_cmd("echo more >> /opt/id", user="root"))
    read = {}
    for called in (first, second, third):
        with Sandbox.create(called, timeout=60) as sandbox:
            read[called] = sandbox.files.read("/opt/id")
            assert sandbox.files.read("/home/user/id") == read[first]
    assert read[first] == read[second] and read[third] == read[first] + "more\n"
    _, said = build(template, skip_cache=True)
    assert "as before" not in said


def test_a_dockerfile_that_names_no_user_is_roots(context):
    recipe = "FROM small\nWORKDIR /app\nCOPY app .\nRUN id -u > /etc/built-by\nENV A=1\n"
    called, _ = build(Template(file_context_path=str(context)).from_dockerfile(recipe))
    with Sandbox.create(called, timeout=60) as sandbox:
        assert sandbox.files.read("/etc/built-by") == "0\n" and sandbox.files.read("/app/main") == "of the app\n"


def test_what_root_of_a_box_cannot_do_is_told():
    with pytest.raises(BuildException, match="code 1.*no new directory at the top: set_workdir and copy do"):
        build(Template().from_image("small").make_dir("/new", user="root"))
    with pytest.raises(BuildException, match="step 1 .* needs root of its box.*begins with the host's own programs"):
        build(Template().from_base_image().apt_install("vim"))
    with pytest.raises(BuildException, match="its working directory '/opt/nowhere' cannot be made"):
        build(Template().from_base_image().set_workdir("/opt/nowhere"))


def test_a_template_that_is_deleted_leaves_the_others():
    one, _ = build(Template().from_image("small").run_cmd("echo one > /opt/one", user="root"))
    two, _ = build(Template().from_template(one).run_cmd("echo two > /opt/two", user="root"))
    asked = Request(os.environ["E2B_API_URL"] + "/templates/" + one, headers={"X-API-KEY": os.environ["E2B_API_KEY"]}, method="DELETE")
    assert urlopen(asked).status == 204
    with Sandbox.create(two, timeout=60) as sandbox:
        assert sandbox.files.read("/opt/one") + sandbox.files.read("/opt/two") == "one\ntwo\n"
