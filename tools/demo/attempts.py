"""Code that nobody has reviewed. Tries what an injected prompt would try, and says which boundary it met.

tools/demo.sh puts LOOT, HOME, PORT and COLOUR in front: where the host keeps something worth stealing.
"""

import ctypes
import errno
import glob
import os
import signal
import socket
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)
got_away = []


class Held(Exception):
    """The attempt was made, and came to nothing: what was met."""


def paint(code, text):
    return f"\x1b[{code}m{text}\x1b[0m" if COLOUR else text


def row(boundary, mark, what, answer, by):
    print(f"  {boundary:<12} {mark} {what:<40} {answer:<12} {by}", flush=True)


def attempt(boundary, what, action, by):
    """One attempt. `by` says what stands in its way: one sentence, or one for each errno that it can answer."""
    try:
        result = action()
    except OSError as refused:
        name = errno.errorcode.get(refused.errno, str(refused.errno or "timed out"))
        sentence = by if isinstance(by, str) else by.get(name, refused.strerror or str(refused))
        return row(boundary, paint(32, "✔"), what, name, sentence)
    except Held as met:
        return row(boundary, paint(32, "✔"), what, str(met), by)
    got_away.append(what)
    row(boundary, paint(31, "✘"), what, paint(31, "GOT AWAY"), result)


def asked(result):
    """The answer of the kernel to a system call made by hand."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "the kernel did it"


def read(path):
    with open(path) as file:
        return repr(file.read(40))


def found(things):
    if things:
        return ", ".join(things)
    raise Held("nothing")


def private_keys():
    return found(glob.glob(f"{HOME}/.ssh/*") + glob.glob("/home/*/.ssh/*") + glob.glob("/root/.ssh/*"))


def plant():
    with open("/usr/bin/backdoor", "w") as file:
        file.write("#!/bin/sh\n")
    return "planted"


def connect(host, port):
    with socket.create_connection((host, port), timeout=3):
        return "connected"


def fork_bomb():
    children, refused = [], None
    while len(children) < 300 and not refused:
        try:
            child = os.fork()
        except OSError as answer:
            refused = answer
            break
        if child == 0:
            time.sleep(30)
            os._exit(0)
        children.append(child)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if not refused:
        return "300 processes"
    raise Held(f"after {len(children)}")


def secrets():
    telling = ("SECRET", "TOKEN", "KEY", "PASSWORD", "CREDENTIAL")
    return found([name for name in os.environ if any(word in name.upper() for word in telling)])


def stay():
    """A process that leaves its family and closes everything, so that it would live on."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for stream in range(3):
                os.close(stream)
            os.execv("/bin/sleep", ["sleep", f"60.{PORT}"])
        os._exit(0)
    os.wait()


PTRACE_SEIZE, CLONE_NEWUSER, CLONE_NEWNS = 0x4206, 0x10000000, 0x00020000
FILTER = "seccomp: not on the list of calls, and reported"
NO_WAY = {
    "EACCES": "Landlock refuses TCP, and no interface leads anywhere",
    "ENETUNREACH": "an empty network namespace: no interface leads anywhere",
    "ECONNREFUSED": "a network namespace of its own: nobody listens there",
}

print(f"in the box: uid {os.getuid()}, pid {os.getpid()}, host name {socket.gethostname()}")
print(f"  {paint(1, 'boundary')}       {paint(1, 'it tries to')}                              "
      f"{paint(1, 'and meets')}")
attempt("files", "read the passwords of the host", lambda: read("/etc/shadow"), "a root of its own: no such file in it")
attempt("files", "read the private key", lambda: read(f"{LOOT}/id_ed25519"), "a root of its own: no such file in it")
attempt("files", "find keys in ~/.ssh", private_keys, "a home of its own, empty")
attempt("files", "plant a program in /usr/bin", plant, "its root is read-only")
attempt("credentials", "find secrets in the environment", secrets, "an environment built from nothing")
attempt("kernel", "mount a file system", lambda: asked(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None)), FILTER)
attempt("kernel", "become root in namespaces", lambda: asked(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS)), FILTER)
attempt("kernel", "trace process 1", lambda: asked(libc.ptrace(PTRACE_SEIZE, 1, None, None)), FILTER)
attempt("kernel", "bomb the host with forks", fork_bomb, "its limit on processes")
attempt("network", "reach the cloud's metadata service", lambda: connect("169.254.169.254", 80), NO_WAY)
attempt("network", f"reach the service on 127.0.0.1:{PORT}", lambda: connect("127.0.0.1", PORT), NO_WAY)
stay()
row("lifecycle", paint(33, "…"), "leave a process behind", "started", "has to end with the box: see below")
sys.exit(1 if got_away else 0)
