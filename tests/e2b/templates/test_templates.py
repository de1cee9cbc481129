"""E2B's published SDK builds templates on a daemon that is already running, and makes sandboxes of them."""

import asyncio
import json
import os
import time
import urllib.error
import urllib.request
import uuid

import pytest
from e2b import (
    AsyncSandbox,
    AsyncTemplate,
    BuildException,
    InvalidArgumentException,
    Sandbox,
    SandboxException,
    Template,
    wait_for_file,
)



def name():
    return "t-" + uuid.uuid4().hex[:12]


@pytest.fixture
def context(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "main.py").write_text("print('from the template')\n")
    (tmp_path / "app" / "deep").mkdir()
    (tmp_path / "app" / "deep" / "data.txt").write_text("deep\n")
    (tmp_path / "note.txt").write_text("a note\n")
    (tmp_path / "tool.sh").write_text("#!/bin/sh\necho tool\n")
    return tmp_path


def ask(method, path, key=None, body=None, url=None):
    """A request of no SDK; its status and text."""
    headers = {"X-API-KEY": key or os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
    asked = urllib.request.Request((url or os.environ["E2B_API_URL"]) + path, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as no:
        return no.code, no.read().decode()


def test_a_template_is_built_and_its_sandboxes_have_what_it_has(context):
    template = (
        Template(file_context_path=str(context))
        .from_base_image()
        .set_envs({"GREETING": "good day", "OTHER": "of the template"})
        .copy("app", "/home/user/app")
        .copy("note.txt", "/home/user/notes/")
        .copy("note.txt", "renamed.txt")
        .copy("tool.sh", "/home/user/bin/tool", mode=0o755)
        .set_workdir("/home/user/work")
        .run_cmd("echo $GREETING from $(id -un) in $(pwd) > said; echo a line of the log")
        .run_cmd(["cat said", "test -x /home/user/bin/tool"])
    )
    said, called = [], name()
    built = Template.build(template, called, cpu_count=1, memory_mb=512, on_build_logs=lambda entry: said.append(entry.message))
    assert built.name == called
    assert any("a line of the log" in line for line in said) and any("RUN" in line for line in said)
    with Sandbox.create(called, envs={"OTHER": "of the sandbox"}, timeout=60) as sandbox:
        assert sandbox.files.read("/home/user/work/said") == "good day from user in /home/user/work\n"
        assert sandbox.files.read("/home/user/app/deep/data.txt") == "deep\n"
        assert sandbox.files.read("/home/user/notes/note.txt") == sandbox.files.read("/home/user/renamed.txt") == "a note\n"
        ran = sandbox.commands.run("pwd; echo $GREETING, $OTHER; python3 ~/app/main.py; ~/bin/tool")
        assert ran.stdout == "/home/user/work\ngood day, of the sandbox\nfrom the template\ntool\n"
        assert sandbox.get_info().memory_mb == 512
        sandbox.commands.run("echo mine > ~/work/said")
    with Sandbox.create(built.template_id, timeout=60) as another:
        assert another.files.read("/home/user/work/said").startswith("good day"), "no sandbox changes its template"


def test_a_step_that_fails_is_told_with_its_words_and_leaves_no_template():
    template = Template().from_base_image().run_cmd("true").run_cmd("echo it breaks here >&2; exit 7")
    said, called = [], name()
    with pytest.raises(BuildException, match="ended with code 7.*steps have no network here"):
        Template.build(template, called, on_build_logs=lambda entry: said.append((entry.level, entry.message)))
    assert ("info", "it breaks here") in said and any(level == "error" for level, _ in said)
    with pytest.raises(SandboxException, match="404.*no finished build"):
        Sandbox.create(called)


def test_what_its_owner_wants_to_run_runs_in_every_sandbox():
    start = "mkdir -p /tmp/up && echo $GREETING > /tmp/up/said && exec sleep 1000"
    template = Template().from_base_image().set_envs({"GREETING": "hello"}).set_start_cmd(start, wait_for_file("/tmp/up/said"))
    called = name()
    Template.build(template, called)
    with Sandbox.create(called, timeout=60) as sandbox:
        assert sandbox.files.read("/tmp/up/said") == "hello\n"
        assert "sleep 1000" in sandbox.commands.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout


def test_one_template_is_built_on_another_and_a_dockerfile_is_one_too(context):
    first, second, third = name(), name(), name()
    Template.build(Template(file_context_path=str(context)).from_base_image().copy("note.txt", "/home/user/"), first)
    Template.build(Template().from_template(first).run_cmd("cat note.txt note.txt > twice.txt"), second)
    with Sandbox.create(second, timeout=60) as sandbox:
        assert sandbox.files.read("twice.txt") == "a note\na note\n"
    recipe = "FROM e2bdev/base\nUSER user\nWORKDIR /home/user/app\nENV A=1\nCOPY app .\nRUN python3 main.py > out.txt\n"
    Template.build(Template(file_context_path=str(context)).from_dockerfile(recipe), third)
    with Sandbox.create(third, timeout=60) as sandbox:
        assert sandbox.commands.run("cat out.txt; echo $A").stdout == "from the template\n1\n"


def test_tags_mean_builds():
    called = name()
    Template.build(Template().from_base_image().run_cmd("echo 1 > version"), called + ":v1")
    Template.build(Template().from_base_image().run_cmd("echo 2 > version"), called, tags=["v2", "latest-one"])
    Template.assign_tags(called + ":v1", ["stable", "default"])
    tags = {tag.tag: str(tag.build_id) for tag in Template.get_tags(called)}
    assert set(tags) == {"v1", "v2", "latest-one", "stable", "default"} and tags["v1"] == tags["stable"] == tags["default"]
    for asked, version in ((called, "1"), (called + ":stable", "1"), (called + ":v2", "2")):
        with Sandbox.create(asked, timeout=60) as sandbox:
            assert sandbox.files.read("version") == version + "\n"
    asked = f"/templates/{called}/tags"
    assert json.loads(ask("GET", asked + "/count")[1]) == {"total": 5}
    assert json.loads(ask("GET", asked + "/exists?tag=v2")[1]) == {"exists": True, "normalizedTag": "v2"}
    assert json.loads(ask("GET", asked + "/exists?tag=v3")[1])["exists"] is False
    groups = json.loads(ask("GET", asked + "/groups?sort=name_desc&search=v")[1])
    assert [group["tag"] for group in groups["tags"]] == ["v2", "v1"] and groups["nextCursor"] is None
    (one,) = groups["tags"][1]["assignments"]
    assert one["buildId"] == tags["v1"] and one["buildFinishedAt"] >= one["buildCreatedAt"]
    assert json.loads(ask("GET", asked + "/v1/assignments")[1]) == {"data": [one], "nextCursor": None}
    assert ask("GET", asked + "/v9/assignments")[0] == 404 and ask("GET", asked + "/groups?sort=odd")[0] == 400
    Template.remove_tags(called, "stable")
    with pytest.raises(SandboxException, match="404"):
        Sandbox.create(called + ":stable")


def test_lists_and_logs_come_in_pages_and_as_they_are_asked_for():
    called = name()
    built = Template.build(Template().from_base_image().run_cmd("echo first").run_cmd("echo second"), called)
    Template.build(Template().from_base_image().run_cmd("true"), called)
    Template.build(Template().from_base_image().run_cmd("true"), name())

    # So many pages at most as there can be templates.
    found, token = [], ""
    for _ in range(110):
        headers = {"X-API-KEY": os.environ["E2B_API_KEY"]}
        asked = urllib.request.Request(os.environ["E2B_API_URL"] + "/v2/templates?limit=1" + token, headers=headers)
        with urllib.request.urlopen(asked) as answer:
            found += [one["templateID"] for one in json.load(answer)]
            token = answer.headers.get("x-next-token")
        if token is None:
            break
        token = "&nextToken=" + token
    assert token is None and len(found) == len(set(found)) >= 2
    assert len(json.loads(ask("GET", f"/templates/{called}")[1])["builds"]) == 2
    assert len(json.loads(ask("GET", f"/templates/{called}?limit=1")[1])["builds"]) == 1

    at = f"/templates/{built.template_id}/builds/{built.build_id}"
    told = lambda query: [line["message"] for line in json.loads(ask("GET", at + query)[1])["logs"]]
    every = told("/logs")
    assert "first" in every and every.index("first") < every.index("second")
    assert told("/logs?direction=backward&source=temporary") == every[::-1]
    assert told("/logs?level=error") == [] and told("/logs?limit=1") == every[:1]
    assert told("/logs?cursor=0") == every and told("/logs?cursor=0&direction=backward") == []
    status = lambda query: json.loads(ask("GET", at + "/status" + query)[1])["logEntries"]
    assert [line["message"] for line in status("?logsOffset=1")] == every[1:]
    assert status("?level=error") == []
    for wrong in ("/logs?level=loud", "/logs?source=else", "/logs?cursor=x", "/status?level=loud", "/status?logsOffset=x"):
        assert ask("GET", at + wrong)[0] == 400, wrong
    assert ask("GET", "/v2/templates?limit=0")[0] == 400 and ask("GET", "/v2/templates?nextToken=%25")[0] == 400


def test_templates_are_found_listed_and_deleted():
    called = name()
    assert not Template.exists(called)
    built = Template.build(Template().from_base_image(), called)
    assert Template.exists(called) and Template.exists("base")
    status, text = ask("GET", "/v2/templates")
    assert status == 200 and called in text and '"buildStatus":"ready"' in text
    assert ask("GET", f"/templates/{built.template_id}")[0] == 200
    assert ask("PATCH", f"/v2/templates/{called}", body=b'{"public":true}')[0] == 400
    assert ask("DELETE", f"/templates/{called}")[0] == 204
    assert ask("DELETE", f"/templates/{called}")[0] == 404
    assert not Template.exists(called)
    with pytest.raises(SandboxException, match="404"):
        Sandbox.create(called)


def test_nobody_sees_what_somebody_else_has_built():
    called, other = name(), os.environ["E2B_OTHER_KEY"]
    built = Template.build(Template().from_base_image().run_cmd("echo secret > s"), called)
    assert not Template.exists(called, api_key=other)
    for asked in (called, built.template_id):
        with pytest.raises(SandboxException, match="404"):
            Sandbox.create(asked, api_key=other)
        with pytest.raises(BuildException, match="not found"):
            Template.build(Template().from_template(asked), name(), api_key=other)
        for method, path in (
            ("GET", f"/templates/{asked}"),
            ("DELETE", f"/templates/{asked}"),
            ("GET", f"/templates/{asked}/tags"),
            ("GET", f"/templates/{asked}/files/{'ab' * 32}"),
            ("GET", f"/templates/{asked}/builds/{built.build_id}/status"),
        ):
            assert ask(method, path, other)[0] == 404, path
    assert called not in ask("GET", "/templates", other)[1]
    # The same name is free for everybody.
    Template.build(Template().from_base_image().run_cmd("echo mine > s"), called, api_key=other)
    with Sandbox.create(called, timeout=60) as sandbox:
        assert sandbox.files.read("s") == "secret\n"
    with Sandbox.create(called, api_key=other, timeout=60) as sandbox:
        assert sandbox.files.read("s") == "mine\n"


def test_what_cannot_be_built_is_refused_by_name():
    cases = [
        (Template().from_image("nobody/knows:1"), "known templates"),
        (Template().from_image("registry.example/x", username="u", password="p"), "image pull"),
        (Template().from_base_image().run_cmd("true", user="postgres"), "step 1: there is no user 'postgres'"),
        (Template().from_base_image().run_cmd("true").apt_install("vim"), "step 2 .* needs root of its box"),
        (Template().from_base_image().make_dir("/opt/x", user="root"), "needs root of its box"),
    ]
    for template, why in cases:
        with pytest.raises(BuildException, match=why):
            Template.build(template, name())
    for bad in ("base", "code-interpreter-v1", "team/name", "a b"):
        with pytest.raises((BuildException, InvalidArgumentException, SandboxException)):
            Template.build(Template().from_base_image(), bad)


def test_an_upload_is_taken_once_and_only_where_it_was_asked_for(context):
    built = Template.build(Template(file_context_path=str(context)).from_base_image().copy("note.txt", "x"), name())
    hashed = "cd" * 32
    status, text = ask("GET", f"/templates/{built.template_id}/files/{hashed}")
    assert status == 201 and '"present":false' in text
    url = text.split('"url":"')[1].split('"')[0]
    assert ask("PUT", "", url=url.replace("cd" * 32, "ef" * 32), body=b"x")[0] == 403
    assert ask("PUT", "", url=url.split("?")[0], body=b"x")[0] == 403
    assert ask("PUT", "", url=url, body=b"no archive at all")[0] == 200
    assert ask("PUT", "", url=url, body=b"x")[0] == 403
    assert '"present":true' in ask("GET", f"/templates/{built.template_id}/files/{hashed}")[1]
    assert ask("GET", f"/templates/{built.template_id}/files/..%2f..%2fetc")[0] == 400


def boxes():
    """The boxes of this key, as the native API lists them."""
    status, text = ask("GET", "/v1/boxes")
    assert status == 200, text
    return [box for box in json.loads(text)["boxes"] if box["phase"] != "gone"]


def until(what, patience=60):
    end = time.monotonic() + patience
    while not (found := what()):
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.2)
    return found


def begun(steps):
    """A build that was started, not awaited: the template, and the build."""
    status, text = ask("POST", "/v3/templates", body=json.dumps({"name": name(), "cpuCount": 1, "memoryMB": 512}).encode())
    assert status == 202, text
    made = json.loads(text)
    plan = json.dumps({"fromImage": "base", "steps": steps}).encode()
    status, text = ask("POST", f"/v2/templates/{made['templateID']}/builds/{made['buildID']}", body=plan)
    return made["templateID"], made["buildID"], status, text


def test_a_template_that_is_deleted_takes_its_build_and_the_box_of_that_along():
    template, build, status, _ = begun([{"type": "RUN", "args": ["sleep 1000"]}])
    assert status == 202
    mine = lambda: [box for box in boxes() if box["metadata"].get("e2b.template-build") == build]
    until(mine)
    assert ask("DELETE", f"/templates/{template}")[0] == 204
    until(lambda: not mine())


def test_a_caller_that_hangs_up_leaves_no_sandbox_that_is_half_begun():
    called = name()
    Template.build(Template().from_base_image().set_start_cmd("sleep 1000", 'test -z "$HOLD"'), called)
    body = {"templateID": called, "timeout": 300, "envVars": {"HOLD": "1"}, "metadata": {"who": called}}
    asked = urllib.request.Request(
        os.environ["E2B_API_URL"] + "/v2/sandboxes",
        data=json.dumps(body).encode(),
        headers={"X-API-KEY": os.environ["E2B_API_KEY"], "Content-Type": "application/json"},
        method="POST",
    )
    with pytest.raises((TimeoutError, urllib.error.URLError)):
        urllib.request.urlopen(asked, timeout=5)
    until(lambda: not [box for box in boxes() if box["metadata"].get("who") == called])


def test_what_steps_say_together_has_an_end():
    env = lambda variable: {"type": "ENV", "args": [variable, "x" * 60_000]}
    _, _, status, text = begun([env(variable) for variable in "ABCDE"])
    assert status == 400 and "step 5: the variables so far" in text, text
    _, _, status, text = begun([{"type": "WORKDIR", "args": ["x/" * 400]}] * 2)
    assert status == 400 and "step 2: a path has at most" in text, text


async def built_asynchronously(context):
    called = name()
    template = AsyncTemplate(file_context_path=str(context)).from_base_image().copy("note.txt", "/home/user/").run_cmd("wc -c < note.txt > size")
    await AsyncTemplate.build(template, called)
    sandbox = await AsyncSandbox.create(called, timeout=60)
    try:
        assert (await sandbox.files.read("size")).strip() == "7"
    finally:
        await sandbox.kill()
    assert await AsyncTemplate.exists(called)


def test_the_same_asynchronously(context):
    asyncio.run(built_asynchronously(context))


def test_a_directory_that_no_step_follows_is_there():
    called = name()
    Template.build(Template().from_base_image().set_workdir("/home/user/app"), called)
    with Sandbox.create(called, timeout=60) as box:
        assert box.commands.run("pwd").stdout == "/home/user/app\n"
    # Tags are found as they are written.
    Template.assign_tags(f"{called}:default", "V1")
    Template.remove_tags(called, "V1")
    assert [tag.tag for tag in Template.get_tags(called)] == ["default"]
