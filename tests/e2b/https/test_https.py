"""`https://PORT-ID.DOMAIN`: the SDK's own traffic, and whoever it hands an address to."""

import asyncio
import socket
import ssl

import pytest
from conftest import DOMAIN, ask
from e2b import AsyncSandbox, Sandbox, SandboxException


def test_the_sdk_needs_a_domain_and_a_key_alone():
    with Sandbox.create(timeout=600) as box:
        assert box.get_host(8000) == f"8000-{box.sandbox_id}.{DOMAIN}"
        assert box.commands.run("echo hello").stdout == "hello\n"
        box.files.write("a.txt", "over TLS")
        assert box.files.read("a.txt") == "over TLS"
        assert box.is_running()
        assert [ours.sandbox_id for ours in Sandbox.list().next_items()] == [box.sandbox_id]
    assert not box.is_running()


def test_the_same_asynchronously():
    async def all_of_it():
        box = await AsyncSandbox.create(timeout=600)
        assert (await box.commands.run("echo hello")).stdout == "hello\n"
        await box.kill()

    asyncio.run(all_of_it())


def test_a_server_inside_is_reached_by_its_name_and_no_other(served):
    box = served()
    assert ask(box.get_host(8000), "/page") == (200, "from inside")
    status, said = ask(box.get_host(8001))
    assert status == 502 and "port is not open" in said
    status, said = ask(f"8000-abcdefghijklmnopqrst.{DOMAIN}")
    assert status == 502 and "was not found" in said
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 8000), timeout=5)


def test_signed_addresses_of_files_have_the_name_too(served):
    box = served()
    address = box.download_url("page")
    assert address.startswith(f"https://49983-{box.sandbox_id}.{DOMAIN}/files?")
    assert ask(address.removeprefix("https://").split("/")[0], "/files?" + address.split("?")[1]) == (200, "from inside")


def test_a_port_that_is_not_public_takes_the_traffic_token(served):
    box = served(network={"allow_public_traffic": False})
    host = box.get_host(8000)
    assert ask(host, "/page")[0] == 403
    assert ask(host, "/page", {"E2B-Traffic-Access-Token": "x" * 40})[0] == 403
    assert ask(host, "/page", {"E2B-Traffic-Access-Token": box.traffic_access_token}) == (200, "from inside")


def test_traffic_wakes_a_paused_sandbox_whose_owner_wants_that(served):
    sleeper = served(lifecycle={"on_timeout": "pause", "auto_resume": True})
    stays = served()
    for box in sleeper, stays:
        try:
            box.pause()
        except SandboxException as error:
            if "could not be paused" in str(error):
                pytest.skip("this host freezes no box")
            raise
    assert ask(stays.get_host(8000), "/page")[0] == 502
    assert ask(sleeper.get_host(8000), "/page") == (200, "from inside")
    assert sleeper.is_running() and not stays.is_running()


def test_a_client_that_trusts_other_authorities_says_nothing():
    with pytest.raises(ssl.SSLCertVerificationError):
        with socket.create_connection(("127.0.0.1", int(DOMAIN.split(":")[1]))) as line:
            ssl.create_default_context(capath="/nonexistent").wrap_socket(line, server_hostname=f"api.{DOMAIN.split(':')[0]}")


def test_plain_http_and_nonsense_at_the_door_hurt_nobody():
    at = ("127.0.0.1", int(DOMAIN.split(":")[1]))
    for greeting in b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 500, b"":
        with socket.create_connection(at, timeout=30) as line:
            line.sendall(greeting)
            line.shutdown(socket.SHUT_WR)
            assert not line.recv(4096).startswith(b"HTTP/")
    assert ask(f"api.{DOMAIN}", "/health")[0] == 204
