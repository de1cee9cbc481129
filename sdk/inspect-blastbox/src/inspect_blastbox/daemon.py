"""The part of the daemon's API that a sandbox needs. Nothing here knows of inspect-ai."""

import asyncio
import base64
import json
import os
from dataclasses import dataclass

import httpx


class Refused(Exception):
    """The daemon said no: its stable code, and what it said."""

    def __init__(self, status: int, code: str, message: str):
        super().__init__(f"{message} ({code})")
        self.status, self.code = status, code


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    how: str
    code: int
    #: Why it was not started: the daemon's word, and what it said.
    why: tuple[str, str]
    stdout: bytes
    stderr: bytes


class TooMuch(Exception):
    """A command said more than its caller takes."""

    def __init__(self, said: bytes):
        super().__init__("too much output")
        self.said = said


def socket_path() -> str:
    """Where the daemon listens: as `blastbox` itself looks for it."""
    given = os.environ.get("BLASTBOX_SOCKET")
    if given:
        return given
    if os.geteuid() == 0:
        return "/run/blastbox/blastbox.sock"
    return os.path.join(os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}"), "blastbox.sock")


class Daemon:
    """A line to the daemon: its socket, or BLASTBOX_URL with BLASTBOX_KEY."""

    def __init__(self) -> None:
        url, key = os.environ.get("BLASTBOX_URL"), os.environ.get("BLASTBOX_KEY")
        transport = None if url else httpx.AsyncHTTPTransport(uds=socket_path())
        headers = {"authorization": f"Bearer {key}"} if url and key else {}
        # Commands may be silent for as long as they like.
        timeout = httpx.Timeout(60, read=None)
        self.http = httpx.AsyncClient(
            transport=transport, base_url=url or "http://blastbox", headers=headers, timeout=timeout
        )

    async def close(self) -> None:
        await self.http.aclose()

    async def ask(self, method: str, path: str, **more) -> httpx.Response:
        return checked(await self.http.request(method, path, **more))

    async def create(self, wanted: dict) -> str:
        return (await self.ask("POST", "/v1/boxes", json=wanted)).json()["id"]

    async def end(self, box: str) -> None:
        try:
            await self.ask("DELETE", f"/v1/boxes/{box}")
        except Refused as refused:
            if refused.code not in ("gone", "not_found"):
                raise

    async def run(
        self, box: str, command: list[str], env: dict[str, str], cwd: str, stdin: bytes | None, most: int
    ) -> Ended:
        """Runs a command. Whoever stops waiting for it kills it, with everything that it started."""
        asked = {"command": command, "env": env, "cwd": cwd, "stdin": "none" if stdin is None else "stream"}
        place = f"/v1/boxes/{box}/execs"
        place = f"{place}/{(await self.ask('POST', place, json=asked)).json()['exec']}"
        feeding = None if stdin is None else asyncio.create_task(self.feed(place, stdin))
        try:
            return await self.listen(place, most)
        except BaseException:
            await asyncio.shield(self.kill(place))
            raise
        finally:
            if feeding:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)

    async def kill(self, place: str) -> None:
        try:
            await self.ask("POST", f"{place}/signal", json={"signal": 9})
        except Refused:
            pass  # It is over.

    async def feed(self, place: str, stdin: bytes) -> None:
        try:
            if stdin:
                await self.ask("POST", f"{place}/stdin", content=stdin)
            await self.ask("POST", f"{place}/stdin/end")
        except Refused:
            pass  # It reads no more.

    async def listen(self, place: str, most: int) -> Ended:
        said = {"stdout": bytearray(), "stderr": bytearray()}
        async with self.http.stream("GET", f"{place}/events") as answer:
            if answer.status_code != 200:
                await answer.aread()
                checked(answer)
            kind = ""
            async for line in answer.aiter_lines():
                if line.startswith("event: "):
                    kind = line[7:]
                elif line.startswith("data: "):
                    data = json.loads(line[6:])
                    if kind == "output":
                        out = said[data["stream"]]
                        out += base64.b64decode(data["base64"])
                        if len(out) > most:
                            raise TooMuch(bytes(out[:most]))
                    elif kind == "ended":
                        how = data["how"]
                        code = data["code"] if how == "exited" else 128 + data.get("signal", 0)
                        why = (str(data.get("code", "")), str(data.get("message", "")))
                        return Ended(how, code, why, bytes(said["stdout"]), bytes(said["stderr"]))
        raise Refused(502, "broken_off", "the daemon ended the answer before the command did")

    async def read(self, box: str, path: str, most: int) -> bytes:
        """At most one byte more than `most`."""
        query = {"path": path, "length": str(most + 1)}
        return (await self.ask("GET", f"/v1/boxes/{box}/files", params=query)).content

    async def write(self, box: str, path: str, content: bytes) -> None:
        # As a shell would: an existing file keeps its place, and what its owner may not change stays.
        query = {"path": path, "parents": "true", "if_exists": "truncate"}
        await self.ask("PUT", f"/v1/boxes/{box}/files", params=query, content=content)


def checked(answer: httpx.Response) -> httpx.Response:
    if answer.is_success:
        return answer
    try:
        error = answer.json()["error"]
        raise Refused(answer.status_code, error["code"], error["message"])
    except (ValueError, KeyError, TypeError):
        raise Refused(answer.status_code, "unknown", answer.text[:200]) from None
