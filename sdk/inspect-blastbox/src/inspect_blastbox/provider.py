"""The provider `blastbox` of inspect-ai."""

import asyncio
import errno
import os
import posixpath

from inspect_ai.util import ExecResult, OutputLimitExceededError, SandboxEnvironment, sandboxenv
from inspect_ai.util._sandbox.limits import SandboxEnvironmentLimits

from .daemon import Daemon, Refused, TooMuch

#: Where commands begin and relative paths lead.
HOME = "/home/user"

#: Level high, what a fresh machine lacks accepted by name, and a root of the box: commands of evaluations name users.
POLICY = """threat = "high"
accept = ["shared-kernel", "host-image", "shared-uid", "no-memory-limit", "no-cpu-limit", "no-pids-limit",
          "swap-unlimited", "weak-landlock", "no-owner-map"]
[kernel]
memory = "1GiB"
pids = 512
root = "allowed"
[files]
disk = "512MiB"
file_size = "512MiB"
[network]
loopback = "own"
[lifetime]
output = "1TiB"
"""

#: The daemon's words about files, as Python says them.
FAULTS = {
    "file_not_found": (FileNotFoundError, errno.ENOENT),
    "not_a_directory": (FileNotFoundError, errno.ENOENT),
    "not_permitted": (PermissionError, errno.EACCES),
    "read_only": (PermissionError, errno.EROFS),
    "is_a_directory": (IsADirectoryError, errno.EISDIR),
    "file_exists": (FileExistsError, errno.EEXIST),
}


@sandboxenv(name="blastbox")
class BlastboxEnvironment(SandboxEnvironment):
    """One box. Its configuration is the name of an image; `host` where none is given."""

    def __init__(self, daemon: Daemon, box: str) -> None:
        self.daemon, self.box = daemon, box

    @classmethod
    async def make(cls, image: str | None = None) -> "BlastboxEnvironment":
        """A box of this image. BLASTBOX_POLICY names a file with another policy."""
        daemon, policy = Daemon(), POLICY
        if path := os.environ.get("BLASTBOX_POLICY"):
            with open(path, encoding="utf-8") as file:
                policy = file.read()
        wanted = {"policy": policy, "image": image or "host", "life": "24h", "idle": "24h"}
        try:
            return cls(daemon, await daemon.create(wanted))
        except BaseException:
            await daemon.close()
            raise

    async def close(self) -> None:
        try:
            await self.daemon.end(self.box)
        finally:
            await self.daemon.close()

    @classmethod
    async def sample_init(cls, task_name, config, metadata) -> dict[str, SandboxEnvironment]:
        return {"default": await cls.make(config if isinstance(config, str) else None)}

    @classmethod
    async def sample_cleanup(cls, task_name, config, environments, interrupted) -> None:
        for environment in environments.values():
            await environment.as_type(BlastboxEnvironment).close()

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        stdin = input.encode() if isinstance(input, str) else input
        cwd = posixpath.join(HOME, cwd or "")
        if user is not None and user != "user":
            cmd = ["sudo", "-n", "-E", "-u", user, "--", *cmd]
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        running = self.daemon.run(self.box, cmd, env or {}, cwd, stdin, most)
        try:
            ended = await asyncio.wait_for(running, timeout)
        except asyncio.TimeoutError:
            raise TimeoutError(f"the command took longer than {timeout} s") from None
        except TooMuch as much:
            limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR
            raise OutputLimitExceededError(limit, much.said.decode(errors="replace")) from None
        if ended.how == "not-started":
            code, message = ended.why
            if code == "not_executable":
                raise PermissionError(errno.EACCES, message, cmd[0])
            return ExecResult(False, 127, "", message)
        if ended.how == "box-ended":
            raise RuntimeError("the box ended before the command did")
        stdout, stderr = ended.stdout.decode(errors="replace"), ended.stderr.decode(errors="replace")
        return ExecResult(ended.code == 0, ended.code, stdout, stderr)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        content = contents.encode() if isinstance(contents, str) else contents
        try:
            await self.daemon.write(self.box, posixpath.join(HOME, file), content)
        except Refused as refused:
            raise as_python(refused, file) from None

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            content = await self.daemon.read(self.box, posixpath.join(HOME, file), most)
        except Refused as refused:
            raise as_python(refused, file) from None
        if len(content) > most:
            raise OutputLimitExceededError(SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None)
        return content.decode() if text else content


def as_python(refused: Refused, file: str) -> Exception:
    kind, number = FAULTS.get(refused.code, (OSError, errno.EIO))
    return kind(number, f"{os.strerror(number)}: {refused}", file)
