"""A daemon whose operator wants no builds builds nothing, and says by which section."""

import json
import os
import urllib.error
import urllib.request

import pytest
from e2b import BuildException, Sandbox, Template


def ask(method, path, body=None):
    headers = {"X-API-KEY": os.environ["E2B_API_KEY"], "Content-Type": "application/json"}
    asked = urllib.request.Request(os.environ["E2B_API_URL"] + path, data=body, headers=headers, method=method)
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as no:
        return no.code, json.loads(no.read())


def test_nothing_is_built_and_the_section_is_named():
    with pytest.raises(BuildException, match=r"403.*\[e2b\.builds\]"):
        Template.build(Template().from_base_image().run_cmd("true"), "mine")
    for method, path in (
        ("POST", "/v3/templates"),
        ("POST", "/v2/templates/mine/builds/x"),
        ("GET", f"/templates/mine/files/{'ab' * 32}"),
    ):
        status, no = ask(method, path, b"{}" if method == "POST" else None)
        assert (status, no["code"], no["error_code"]) == (403, 403, "template_builds_off"), path
        assert "[e2b.builds]" in no["message"]
    assert ask("GET", "/templates") == (200, [])
    assert not Template.exists("mine") and Template.exists("base")


def test_sandboxes_are_made_as_ever():
    with Sandbox.create(timeout=60) as sandbox:
        assert sandbox.commands.run("echo there").stdout == "there\n"
