"""Code that nobody has reviewed. Tries what an injected prompt would try and says what came of it.

tools/demo.sh puts LOOT, HOME and PORT in front: where the host keeps something worth stealing.
"""

import ctypes
import errno
import glob
import os
import signal
import socket
import time

libc = ctypes.CDLL(None, use_errno=True)


def attempt(what, action):
    try:
        result = action()
    except OSError as refused:
        result = f"{errno.errorcode.get(refused.errno, refused.errno)} ({refused.strerror or refused})"
    except Exception as refused:  # whatever happens, the next attempt follows
        result = f"{type(refused).__name__}: {refused}"
    print(f"tried {what:<44} → {result}", flush=True)


def asked(result):
    """The answer of the kernel to a system call made by hand."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "IT WORKED"


def read(path):
    with open(path) as file:
        return f"GOT IT: {file.read(40)!r}"


def names(folder):
    found = os.listdir(folder)
    return f"SAW {found}" if found else "empty"


def private_keys():
    found = glob.glob(f"{HOME}/.ssh/*") + glob.glob("/home/*/.ssh/*") + glob.glob("/root/.ssh/*")
    return f"FOUND {found}" if found else "nothing there"


def plant():
    with open("/usr/bin/backdoor", "w") as file:
        file.write("#!/bin/sh\n")
    return "PLANTED"


def connect(host, port):
    with socket.create_connection((host, port), timeout=3) as peer:
        return f"CONNECTED: {peer.recv(40)!r}" if port == PORT else "CONNECTED"


def fork_bomb():
    children, stopped = [], "nothing stopped it"
    try:
        while len(children) < 300:
            child = os.fork()
            if child == 0:
                time.sleep(30)
                os._exit(0)
            children.append(child)
    except OSError as refused:
        stopped = f"then {errno.errorcode.get(refused.errno)}"
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return f"{len(children)} of 300 children, {stopped}"


def secrets():
    telling = ("SECRET", "TOKEN", "KEY", "PASSWORD", "CREDENTIAL")
    found = [name for name in os.environ if any(word in name.upper() for word in telling)]
    return f"FOUND {found}" if found else f"nothing: only {', '.join(sorted(os.environ)) or 'an empty environment'}"


PTRACE_SEIZE, CLONE_NEWUSER, CLONE_NEWNS = 0x4206, 0x10000000, 0x00020000

print(f"uid {os.getuid()}, pid {os.getpid()}, host name {socket.gethostname()}")
attempt("to read the passwords of the host", lambda: read("/etc/shadow"))
attempt(f"to read {LOOT}/id_ed25519", lambda: read(f"{LOOT}/id_ed25519"))
attempt("to find private keys in ~/.ssh", private_keys)
attempt("to list /home", lambda: names("/home"))
attempt("to find secrets in the environment", secrets)
attempt("to plant a program in /usr/bin", plant)
attempt("to mount a file system", lambda: asked(libc.mount(b"none", b"/mnt", b"tmpfs", 0, None)))
attempt("to unshare namespaces and become root", lambda: asked(libc.unshare(CLONE_NEWUSER | CLONE_NEWNS)))
attempt("to trace process 1", lambda: asked(libc.ptrace(PTRACE_SEIZE, 1, None, None)))
attempt("to reach the cloud's metadata service", lambda: connect("169.254.169.254", 80))
attempt(f"to reach the host's service on 127.0.0.1:{PORT}", lambda: connect("127.0.0.1", PORT))
attempt("to bomb the host with forks", fork_bomb)
