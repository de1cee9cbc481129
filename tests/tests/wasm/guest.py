"""What tests have a component do that componentize-py made: its first argument says it."""

import os
import random
import select
import shutil
import socket
import sys
import time

from componentize_py_types import Err
from wit_world import exports


class Run(exports.Run):
    def run(self) -> None:
        VERBS[sys.argv[1]]()
        sys.stdout.flush()


def hello() -> None:
    print(sys.argv[2:], repr(os.environ.get("A")), repr(sys.stdin.read()))
    print("and to the other", file=sys.stderr)


def fail() -> None:
    raise Err(None)


def files() -> None:
    print(open("a.txt").read(), open("/workspace/sub/b.txt").read())
    os.mkdir("made")
    with open("made/one", "x+b") as file:
        file.write(b"0123456789")
        file.seek(2)
        file.write(b"xy")
        file.seek(0)
        print(file.read().decode(), os.fstat(file.fileno()).st_size)
    with open("made/one", "ab") as file:
        file.write(b"!")
        file.truncate(4)
    print(open("made/one").read())
    os.rename("made/one", "/tmp/two")
    shutil.copyfile("/tmp/two", "made/three")
    print(os.path.isdir("made"), os.path.getsize("made/three"), os.path.exists("made/one"))
    print(refused(lambda: os.rmdir("made")))
    os.makedirs("/tmp/deep/er")
    for number in range(1000):
        open(f"/tmp/deep/f{number}", "x").close()
    print(len(set(os.listdir("/tmp/deep"))))
    for entry in os.scandir("/tmp/deep"):
        if entry.is_file():
            os.unlink(entry.path)
    print(os.listdir("/tmp/deep"))
    shutil.rmtree("/tmp/deep")
    # A hole is zeros, and a write of nothing makes none.
    with open("/tmp/hole", "wb") as file:
        os.pwrite(file.fileno(), b"x", 100_000)
        os.pwrite(file.fileno(), b"", 200_000)
    whole = open("/tmp/hole", "rb").read()
    print(len(whole), whole.count(0))


def outside() -> None:
    for path in ["/etc/passwd", "../etc/passwd", "../../../../etc/passwd", "/proc/self/status", "/wasm"]:
        print(refused(lambda: open(path)))
    print(sorted(os.listdir("/workspace/..")), refused(lambda: os.rmdir("/workspace")))
    print(refused(lambda: socket.socket().connect(("127.0.0.1", 1))))
    print(refused(lambda: os.symlink("a", "b")))


def full() -> None:
    written = 0
    try:
        with open("/tmp/full", "wb", buffering=0) as file:
            while written < 1 << 30:
                written += file.write(bytes(65_536))
    except OSError as error:
        print(written >> 20, error.errno)
    os.unlink("/tmp/full")
    open("/tmp/again", "wb").write(bytes(65_536))


def output() -> None:
    for _ in range(16_384):
        print("x" * 65_536)


def endless() -> None:
    while True:
        pass


def memory() -> None:
    held = []
    try:
        while True:
            held.append(bytearray(b"x" * (1 << 20)))
    except MemoryError:
        count = len(held)
        held.clear()
        print("no more than", count)


def stack() -> None:
    sys.setrecursionlimit(1 << 30)
    deeper = []
    for _ in range(1_000_000):
        deeper = [deeper]
    repr(deeper)


def handles() -> None:
    held = []
    try:
        while len(held) < 100_000:
            held.append(open("/tmp/one", "w"))
    except OSError as error:
        print(len(held), error.errno)
    held.clear()
    open("/tmp/one", "w").write("again")
    for _ in range(5_000):
        time.sleep(1e-9)
    print("slept")


def chance() -> None:
    began = time.monotonic()
    time.sleep(0.01)
    print(random.SystemRandom().random(), os.urandom(8).hex())
    print(time.monotonic() - began, time.time())
    open("/tmp/dated", "w").close()
    print(os.stat("/tmp/dated").st_mtime)
    # When input comes is not heard.
    print(select.select([0], [], [], 0.001)[0], repr(sys.stdin.readline()))


def hole() -> None:
    with open("/tmp/hole", "wb") as file:
        file.seek(int(sys.argv[2]))
        file.write(b"x")
    print(os.path.getsize("/tmp/hole"))


def refused(tried):
    try:
        tried()
    except OSError as error:
        return error.errno
    return None


VERBS = {
    "hello": hello,
    "exit": lambda: os._exit(int(sys.argv[2])),
    "fail": fail,
    "panic": os.abort,
    "files": files,
    "outside": outside,
    "full": full,
    "output": output,
    "endless": endless,
    "sleep": lambda: time.sleep(1e6),
    "memory": memory,
    "stack": stack,
    "handles": handles,
    "chance": chance,
    "hole": hole,
}
