"""Secrets that a tenant keeps here, with E2B's own SDK, synchronous and asynchronous. BLASTBOX_SECRET_HOST is a host that says back over
TLS what it was asked, BLASTBOX_OTHER_KEY a key of somebody else."""

import asyncio
import os
import uuid

import pytest
from e2b import AsyncSandbox, AsyncSecret, RateLimitException, Sandbox, SandboxException, Secret
from e2b.exceptions import SecretException, SecretNotFoundException

HOST = os.environ["BLASTBOX_SECRET_HOST"]
OTHER = os.environ["BLASTBOX_OTHER_KEY"]
#: What the test around this one looks for at the host, and on the disk.
FIRST, SECOND = "sk-first-value-of-the-owner", "sk-second-value-of-the-owner"
ASK = f"""
import os, urllib.request
asked = urllib.request.Request("https://{HOST}/WHICH", headers={{"Authorization": "Bearer of-the-box"}})
print(urllib.request.urlopen(asked, timeout=20).read().decode())
print(os.environ)
"""


def name():
    return "s-" + uuid.uuid4().hex[:12]


def network(headers):
    return {"allow_out": [HOST], "rules": {HOST: [{"transform": {"headers": headers}}]}}


@pytest.fixture
def secret():
    made = Secret.create(name(), FIRST)
    yield made
    Secret.destroy(made.secret_id)


def asked(sandbox, which):
    sandbox.files.write("/home/user/ask.py", ASK.replace("WHICH", which))
    return sandbox.commands.run("python3 /home/user/ask.py").stdout


def test_a_secret_is_made_found_renewed_and_destroyed():
    called = name()
    made = Secret.create(called.upper(), FIRST, {"team": "one"})
    assert (made.name, made.version, made.metadata) == (called, 1, {"team": "one"})
    assert made.secret_id.startswith("sec_") and made.created_at == made.updated_at
    assert Secret.get_info(called) == Secret.get_info(made.secret_id) == made
    with pytest.raises(SecretException, match="409"):
        Secret.create(called, FIRST)
    again = Secret.update(called, SECOND)
    assert (again.secret_id, again.version, again.metadata) == (made.secret_id, 2, {"team": "one"})
    assert again.created_at == made.created_at and again.updated_at >= made.updated_at
    assert Secret.update(made.secret_id, SECOND, {}).metadata == {}
    assert Secret.exists(called) and not Secret.exists(called, api_key=OTHER)
    assert Secret.destroy(called, api_key=OTHER) is False
    with pytest.raises(SecretNotFoundException):
        Secret.update(called, SECOND, api_key=OTHER)
    assert Secret.destroy(called) is True
    assert Secret.destroy(called) is False and not Secret.exists(made.secret_id)
    with pytest.raises(SecretNotFoundException):
        Secret.get_info(called)
    for bad in (lambda: Secret.create("sec_mine", FIRST), lambda: Secret.create(name(), "short")):
        with pytest.raises(SecretException, match="400"):
            bad()


def test_secrets_are_listed_page_by_page_and_there_are_no_more_than_allowed():
    made = []
    try:
        with pytest.raises(RateLimitException, match="at most 4 secrets"):
            for _ in range(6):
                made.append(Secret.create(name(), FIRST).secret_id)
        assert len(made) == 4
        pages, paginator = [], Secret.list(limit=3)
        for _ in range(3):
            if not paginator.has_next:
                break
            pages.append([one.secret_id for one in paginator.next_items()])
        assert [len(page) for page in pages] == [3, 1]
        assert sorted(sum(pages, [])) == sorted(made)
        assert Secret.list(api_key=OTHER).next_items() == []
    finally:
        for one in made:
            Secret.destroy(one)


def test_the_host_gets_the_value_and_the_sandbox_never_has_it(secret):
    headers = {"Authorization": f"Bearer {Secret.fill(secret.name)}", "X-Api-Key": Secret.fill(secret.name.upper())}
    sandbox = Sandbox.create(timeout=120, network=network(headers))
    try:
        seen = asked(sandbox, "first")
        assert "*" * len(FIRST) in seen and FIRST not in seen and "of-the-box" not in seen
        assert "e2b.secrets" not in seen
        # What a sandbox was made with stays; the next one has what is kept now.
        Secret.update(secret.secret_id, SECOND)
        assert FIRST not in asked(sandbox, "still-first")
        with Sandbox.create(timeout=120, network=network(headers)) as other:
            seen = asked(other, "second")
            assert "*" * len(SECOND) in seen and SECOND not in seen
        info = str(sandbox.get_info())
        assert FIRST not in info and SECOND not in info
        Secret.destroy(secret.secret_id)
        asked(sandbox, "after-all")
        with pytest.raises(SandboxException, match="not found"):
            Sandbox.create(timeout=60, network=network(headers))
    finally:
        sandbox.kill()


def test_what_cannot_be_filled_in_is_refused_by_name(secret):
    for value, words in (
        (Secret.fill("nobodys"), "not found"),
        ("token " + Secret.fill(secret.name), "whole value"),
        ("${e2b.identity.tokens.aws}", "filled in"),
    ):
        with pytest.raises(SandboxException, match=f"400.*{words}"):
            Sandbox.create(timeout=60, network=network({"X-Api-Key": value}))
    # Nobody fills in what is another's.
    with pytest.raises(SandboxException, match="not found"):
        Sandbox.create(timeout=60, api_key=OTHER, network=network({"X-Api-Key": Secret.fill(secret.name)}))


def test_the_same_asynchronously():
    async def all_of_it():
        made = await AsyncSecret.create(name(), FIRST)
        try:
            assert (await AsyncSecret.get_info(made.name)).secret_id == made.secret_id
            assert made.secret_id in [one.secret_id for one in await AsyncSecret.list(limit=10).next_items()]
            assert (await AsyncSecret.update(made.name, SECOND)).version == 2
            headers = {"X-Api-Key": AsyncSecret.fill(made.name)}
            sandbox = await AsyncSandbox.create(timeout=120, network=network(headers))
            try:
                await sandbox.files.write("/home/user/ask.py", ASK.replace("WHICH", "async"))
                seen = (await sandbox.commands.run("python3 /home/user/ask.py")).stdout
                assert "*" * len(SECOND) in seen and SECOND not in seen
            finally:
                await sandbox.kill()
        finally:
            assert await AsyncSecret.destroy(made.name) is True
        assert await AsyncSecret.exists(made.name) is False

    asyncio.run(all_of_it())
