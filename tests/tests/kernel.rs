//! The kernel boundary: what a payload is, which system calls it has, and that each denied one is named.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use blastbox_tests::{Boxed, Caller, both_ways, cc};

both_ways!(
    a_payload_has_no_capability_in_any_set,
    a_payload_is_uid_1000_without_further_groups_and_can_become_nobody_else,
    securebits_are_locked,
    calls_that_reach_beyond_the_box_are_denied_and_named,
    calls_that_ordinary_programs_make_are_allowed_and_not_reported,
    a_repeated_denied_call_is_counted,
    clone3_is_absent_so_that_libraries_fall_back_to_clone,
    clone_makes_no_namespace_of_any_kind,
    only_unix_and_internet_sockets_can_be_made,
    device_nodes_cannot_be_made_and_pipes_can,
    nothing_can_be_typed_into_a_terminal,
    a_program_may_lock_itself_in_further_but_not_listen,
    the_i386_door_is_closed_by_death,
    the_x32_door_is_closed_by_death,
    a_denied_call_ends_the_box_where_the_policy_says_so,
    an_allowed_call_does_not_end_the_box_where_denied_ones_would,
    the_host_name_and_ipc_of_the_host_are_not_those_of_the_box,
);

/// `attempt(number, …)`: "ok", or the name of the errno. Buffers are passed as bytes, all else as numbers.
const CALLS: &str = r#"
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(number, *arguments):
    ctypes.set_errno(0)
    given = [ctypes.c_char_p(a) if isinstance(a, bytes) else ctypes.c_long(a) for a in arguments]
    if libc.syscall(ctypes.c_long(number), *given) >= 0: return "ok"
    return errno.errorcode[ctypes.get_errno()]
"#;

/// Whether the numbers below are those of this machine.
fn is_x86_64(caller: &Caller) -> bool {
    let fits = cfg!(target_arch = "x86_64");
    if !fits {
        caller.skip("the numbers of this test are those of x86_64");
    }
    fits
}

fn calls(caller: &Caller, options: &[&str], code: &str) -> Boxed {
    caller.python(options, &format!("{CALLS}\n{code}"))
}

/// A line of /proc/self/status.
fn line<'a>(status: &'a str, name: &str) -> &'a str {
    let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    found.unwrap_or_else(|| unreachable!("no {name} in {status}")).trim()
}

fn a_payload_has_no_capability_in_any_set(caller: &Caller) {
    let boxed = caller.run(&[], &["cat", "/proc/self/status"]).fine();
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(line(&boxed.stdout, set), "0000000000000000", "{set}");
    }
    assert_eq!(line(&boxed.stdout, "NoNewPrivs"), "1");
    assert_eq!(line(&boxed.stdout, "Seccomp"), "2");
}

fn a_payload_is_uid_1000_without_further_groups_and_can_become_nobody_else(caller: &Caller) {
    let code = r#"
import json, os
def tried(what, *arguments):
    try: what(*arguments); return "ok"
    except OSError as error: return error.strerror
print(json.dumps({"ids": [*os.getresuid(), *os.getresgid()], "groups": os.getgroups(), "same": tried(os.setuid, 1000),
    "others": [tried(os.setuid, 0), tried(os.setgid, 0), tried(os.setuid, 1), tried(os.setresuid, 0, 0, 0),
        tried(os.setgroups, [0])]}))
"#;
    let seen = caller.python(&[], code).fine().json();
    assert_eq!(seen["ids"], serde_json::json!([1000, 1000, 1000, 1000, 1000, 1000]));
    assert_eq!(seen["same"], "ok");
    for other in seen["others"].as_array().unwrap() {
        assert_ne!(other, "ok");
    }
    if caller.is_root() {
        // An ordinary user may not give up the groups that it came with; the kernel shows them as nobody's.
        assert_eq!(seen["groups"], serde_json::json!([]));
    }
}

fn securebits_are_locked(caller: &Caller) {
    let code = r#"
bits = libc.prctl(27, 0, 0, 0, 0)
print(json.dumps({"bits": bits, "set": libc.prctl(28, 0, 0, 0, 0)}))
"#;
    let seen = calls(caller, &[], code).fine().json();
    // No root, no fixup, no ambient; each with its lock, and the lock of "keep capabilities", which itself is off.
    assert_eq!(seen["bits"], 0xEF);
    assert_eq!(seen["set"], -1);
}

/// Name, number, arguments in Python. Each would do nothing, or fail otherwise, where it were not denied.
const DENIED: &[(&str, u32, &str)] = &[
    ("unshare", 272, "0x10000000"),
    ("setns", 308, "-1, 0"),
    ("mount", 165, "b'none', b'/tmp', b'tmpfs', 0, 0"),
    ("umount2", 166, "b'/nowhere', 0"),
    ("pivot_root", 155, "b'/tmp', b'/tmp'"),
    ("chroot", 161, "b'/tmp'"),
    ("open_tree", 428, "-1, b'', 0"),
    ("move_mount", 429, "-1, b'', -1, b'', 0"),
    ("fsopen", 430, "b'tmpfs', 0"),
    ("fsmount", 432, "-1, 0, 0"),
    ("mount_setattr", 442, "-1, b'', 0, 0, 0"),
    ("ptrace", 101, "0, 0, 0, 0"),
    ("process_vm_readv", 310, "os.getpid(), 0, 0, 0, 0, 0"),
    ("process_vm_writev", 311, "os.getpid(), 0, 0, 0, 0, 0"),
    ("pidfd_getfd", 438, "-1, 0, 0"),
    ("kcmp", 312, "os.getpid(), os.getpid(), 0, 0, 0"),
    ("move_pages", 279, "0, 0, 0, 0, 0, 0"),
    ("io_uring_setup", 425, "1, 0"),
    ("io_uring_enter", 426, "-1, 0, 0, 0, 0"),
    ("io_uring_register", 427, "-1, 0, 0, 0"),
    ("bpf", 321, "0, 0, 0"),
    ("perf_event_open", 298, "0, 0, -1, -1, 0"),
    ("userfaultfd", 323, "1"),
    ("vmsplice", 278, "-1, 0, 0, 0"),
    ("memfd_secret", 447, "0"),
    ("add_key", 248, "b'user', b'x', b'x', 1, -3"),
    ("request_key", 249, "b'user', b'x', 0, 0"),
    ("keyctl", 250, "0, -3, 0"),
    ("fanotify_init", 300, "0, 0"),
    ("name_to_handle_at", 303, "-1, b'', 0, 0, 0"),
    ("open_by_handle_at", 304, "-1, 0, 0"),
    ("msgget", 68, "0, 0"),
    ("mq_open", 240, "b'x', 0, 0, 0"),
    ("modify_ldt", 154, "0, 0, 0"),
    ("kexec_load", 246, "0, 0, 0, 0"),
    ("kexec_file_load", 320, "-1, -1, 0, 0, 0"),
    ("init_module", 175, "0, 0, b''"),
    ("finit_module", 313, "-1, b'', 0"),
    ("delete_module", 176, "b'none-of-this-name', 0"),
    ("reboot", 169, "0, 0, 0, 0"),
    ("swapon", 167, "b'/nowhere', 0"),
    ("acct", 163, "0"),
    ("syslog", 103, "10, 0, 0"),
    ("iopl", 172, "0"),
    ("ioperm", 173, "0, 1, 0"),
    ("sethostname", 170, "b'x', 1"),
    ("settimeofday", 164, "0, 0"),
    ("clock_settime", 227, "-1, 0"),
    ("quotactl", 179, "-1, 0, 0, 0"),
];

fn calls_that_reach_beyond_the_box_are_denied_and_named(caller: &Caller) {
    if !is_x86_64(caller) {
        return;
    }
    let attempts: Vec<String> =
        DENIED.iter().map(|(name, number, with)| format!("\"{name}\": attempt({number}, {with})")).collect();
    let code = format!("print(json.dumps({{{}}}))", attempts.join(", "));
    let boxed = calls(caller, &[], &code).fine();
    let seen = boxed.json();
    for (name, number, _) in DENIED {
        assert_eq!(seen[name], "EPERM", "{name}");
        assert_eq!(boxed.denied(name), 1, "{name} in the receipt");
        let named = boxed.receipt.denied.iter().find(|call| call.name.as_deref() == Some(name)).unwrap();
        assert_eq!(named.number, *number);
        assert!(named.first_pid > 1, "{name} was tried by {}", named.first_pid);
    }
    assert_eq!(boxed.receipt.denied.len(), DENIED.len(), "{:?}", boxed.receipt.denied);
}

fn calls_that_ordinary_programs_make_are_allowed_and_not_reported(caller: &Caller) {
    let code = r#"
import os, signal, socket, subprocess, tempfile, threading, mmap, select, time, multiprocessing
child = os.fork()
if child == 0: os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
said = []
threads = [threading.Thread(target=said.append, args=(n,)) for n in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert sorted(said) == list(range(8))
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
    left, right = socket.socketpair(socket.AF_UNIX, kind)
    left.send(b"x"); assert right.recv(9) == b"x"
os.mkfifo("/tmp/pipe")
assert subprocess.run(["/bin/sh", "-c", "echo out; exit 3"], capture_output=True).returncode == 3
sleeper = subprocess.Popen(["sleep", "60"]); sleeper.terminate(); assert sleeper.wait() == -15
with mmap.mmap(-1, 1 << 20) as memory: memory[0] = 1
memfd = os.memfd_create("x"); os.write(memfd, b"x")
poll = select.epoll(); poll.register(left.fileno()); poll.poll(0)
signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.001); time.sleep(0.002)
main, other = os.openpty(); os.write(other, b"x"); assert os.read(main, 9) == b"x"
pidfd = os.pidfd_open(os.getpid()); signal.pidfd_send_signal(pidfd, 0)
with multiprocessing.Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
os.sched_getaffinity(0); os.getrandom(8); os.uname(); os.times()
print("all of it")
"#;
    let boxed = caller.python(&[], code).fine();
    assert_eq!(boxed.stdout, "all of it\n");
    assert_eq!(boxed.receipt.denied, [], "nothing was denied");
}

fn a_repeated_denied_call_is_counted(caller: &Caller) {
    if !is_x86_64(caller) {
        return;
    }
    let boxed = calls(caller, &[], "for _ in range(1000): attempt(272, 0)\nprint(attempt(39))").fine();
    assert_eq!(boxed.denied("unshare"), 1000);
    assert_eq!(boxed.receipt.denied.len(), 1);
    assert_eq!(boxed.stdout, "ok\n");
}

fn clone3_is_absent_so_that_libraries_fall_back_to_clone(caller: &Caller) {
    if !is_x86_64(caller) {
        return;
    }
    let boxed = calls(caller, &[], "print(attempt(435, bytes(88), 88), attempt(39))").fine();
    assert_eq!(boxed.stdout, "ENOSYS ok\n");
    assert_eq!(boxed.receipt.denied, [], "a fallback is not worth a report");
}

fn clone_makes_no_namespace_of_any_kind(caller: &Caller) {
    if !is_x86_64(caller) {
        return;
    }
    let code = r#"
kinds = {"user": 0x10000000, "mount": 0x20000, "pid": 0x20000000, "net": 0x40000000, "ipc": 0x8000000, "uts": 0x4000000,
    "cgroup": 0x2000000, "time": 0x80}
seen = {}
for name, flag in kinds.items():
    ctypes.set_errno(0)
    child = libc.syscall(ctypes.c_long(56), ctypes.c_long(flag | 17), 0, 0, 0, 0)
    if child == 0: os._exit(0)
    seen[name] = errno.errorcode[ctypes.get_errno()] if child < 0 else "ok"
child = libc.syscall(ctypes.c_long(56), ctypes.c_long(17), 0, 0, 0, 0)
if child == 0: os._exit(0)
seen["plain"] = "ok" if os.waitpid(child, 0)[1] == 0 else "failed"
print(json.dumps(seen))
"#;
    let boxed = calls(caller, &[], code).fine();
    let seen = boxed.json();
    for kind in ["user", "mount", "pid", "net", "ipc", "uts", "cgroup", "time"] {
        assert_eq!(seen[kind], "EPERM", "{kind}");
    }
    assert_eq!(seen["plain"], "ok");
    assert_eq!(boxed.denied("clone"), 8);
}

fn only_unix_and_internet_sockets_can_be_made(caller: &Caller) {
    let code = r#"
import errno, json, socket
seen = {}
def made(name, *arguments):
    try: socket.socket(*arguments).close(); seen[name] = "ok"
    except OSError as error: seen[name] = errno.errorcode[error.errno]
made("packet", 17, 3, 0x300)
made("vsock", 40, 1)
made("alg", 38, 5)
made("netlink", 16, 3, 0)
made("xdp", 44, 3)
made("can", 29, 3, 1)
made("bluetooth", 31, 3, 0)
made("tipc", 30, 1)
made("rds", 21, 5)
made("raw", 2, 3, 1)
made("sctp", 2, 1, 132)
made("mptcp", 2, 1, 262)
made("unix", 1, 1)
made("unix datagram", 1, 2)
made("tcp", 2, 1)
made("tcp6", 10, 1)
made("udp", 2, 2)
print(json.dumps(seen))
"#;
    let boxed = caller.python(&[], code).fine();
    let seen = boxed.json();
    for family in ["packet", "vsock", "alg", "netlink", "xdp", "can", "bluetooth", "tipc", "rds"] {
        assert_eq!(seen[family], "EAFNOSUPPORT", "{family}");
    }
    assert_eq!(seen["raw"], "EPERM");
    assert_eq!(seen["sctp"], "EPROTONOSUPPORT");
    assert_eq!(seen["mptcp"], "EPROTONOSUPPORT");
    for neighbour in ["unix", "unix datagram", "tcp", "udp"] {
        assert_eq!(seen[neighbour], "ok", "{neighbour}");
    }
    assert_ne!(seen["tcp6"], "EPERM", "a host without IPv6 may lack it, the filter does not take it away");
    // netlink (every getaddrinfo) and MPTCP (every Go program) are refused without a report; the other ten are named.
    assert_eq!(boxed.denied("socket"), 10, "{:?}", boxed.receipt.denied);
}

fn device_nodes_cannot_be_made_and_pipes_can(caller: &Caller) {
    let code = r#"
import errno, json, os, stat
seen = {}
for name, kind in {"char": stat.S_IFCHR, "block": stat.S_IFBLK, "whiteout": stat.S_IFCHR, "pipe": stat.S_IFIFO,
        "file": stat.S_IFREG, "socket": stat.S_IFSOCK}.items():
    try: os.mknod("/tmp/" + name, kind | 0o600, 0 if name == "whiteout" else os.makedev(1, 5)); seen[name] = "ok"
    except OSError as error: seen[name] = errno.errorcode[error.errno]
print(json.dumps(seen))
"#;
    let boxed = caller.python(&[], code).fine();
    let seen = boxed.json();
    for kind in ["char", "block", "whiteout"] {
        assert_eq!(seen[kind], "EPERM", "{kind}");
    }
    for kind in ["pipe", "file", "socket"] {
        assert_eq!(seen[kind], "ok", "{kind}");
    }
    assert_eq!(boxed.denied("mknod") + boxed.denied("mknodat"), 3);
}

fn nothing_can_be_typed_into_a_terminal(caller: &Caller) {
    let code = r#"
import errno, fcntl, json, os, struct, termios
main, other = os.openpty()
seen = {}
for name, request, value in [("TIOCSTI", 0x5412, b"x"), ("TIOCLINUX", 0x541C, b"\x03"), ("TIOCCONS", 0x541D, b""),
        ("TIOCSETD", 0x5423, struct.pack("i", 0)), ("TIOCGWINSZ", termios.TIOCGWINSZ, bytes(8)),
        ("TCGETS", termios.TCGETS, bytes(60))]:
    try: fcntl.ioctl(other, request, value); seen[name] = "ok"
    except OSError as error: seen[name] = errno.errorcode[error.errno]
# The high half of the request is not looked at by the kernel, and must not lead around the filter.
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall(ctypes.c_long(16), ctypes.c_long(other), ctypes.c_ulong(0x1_0000_5412), ctypes.c_char_p(b"x"))
seen["high"] = errno.errorcode[ctypes.get_errno()]
print(json.dumps(seen))
"#;
    let boxed = caller.python(&[], code).fine();
    let seen = boxed.json();
    for request in ["TIOCSTI", "TIOCLINUX", "TIOCCONS", "TIOCSETD", "high"] {
        assert_eq!(seen[request], "EPERM", "{request}");
    }
    for request in ["TIOCGWINSZ", "TCGETS"] {
        assert_eq!(seen[request], "ok", "{request}");
    }
    assert_eq!(boxed.denied("ioctl"), 5);
}

fn a_program_may_lock_itself_in_further_but_not_listen(caller: &Caller) {
    if !is_x86_64(caller) {
        return;
    }
    // One instruction: allow. With a listener the supervisor could answer calls in place of the kernel.
    let code = r#"
program = ctypes.create_string_buffer(bytes.fromhex("0600000000 00ff7f".replace(" ", "")))
class Filter(ctypes.Structure): _fields_ = [("count", ctypes.c_ushort), ("at", ctypes.c_void_p)]
filter = Filter(1, ctypes.addressof(program))
def install(flags):
    ctypes.set_errno(0)
    if libc.syscall(ctypes.c_long(317), 1, flags, ctypes.byref(filter)) >= 0: return "ok"
    return errno.errorcode[ctypes.get_errno()]
print(json.dumps({"listener": install(8), "log": install(2), "plain": install(0), "mode": libc.prctl(22, 2, ctypes.byref(filter))}))
"#;
    let seen = calls(caller, &[], code).fine().json();
    assert_eq!((&seen["listener"], &seen["log"]), (&"EINVAL".into(), &"EINVAL".into()));
    assert_eq!(seen["plain"], "ok");
    assert_eq!(seen["mode"], -1, "the old spelling, which has no flags to look at");
}

/// Runs a static program from the workspace, after it has shown outside that this host has that door at all.
fn through_a_door(caller: &Caller, source: &str) {
    if !is_x86_64(caller) {
        return;
    }
    let directory = caller.directory("project");
    let Some(made) = cc(caller, "door", source, &[]) else {
        return caller.skip("no C compiler that makes static programs (apt-get install build-essential)");
    };
    std::fs::copy(&made, directory.join("door")).unwrap();
    caller.own(&directory.join("door"));
    let workspace = directory.to_str().unwrap();
    let fine = caller.run(&["--workspace", workspace], &["/workspace/door", "native"]).fine();
    assert_eq!(fine.stdout, "native\n");
    let boxed = caller.run(&["--workspace", workspace], &["/workspace/door", "foreign"]);
    assert_eq!((boxed.outcome(), boxed.receipt.signal), ("signalled", Some(31)), "{}", boxed.stdout);
    assert_eq!(boxed.receipt.exit_code, 128 + 31);
    assert_eq!(boxed.stdout, "", "it died of the call, not later");
}

fn the_i386_door_is_closed_by_death(caller: &Caller) {
    // Number 20 is getpid there; a kernel without 32-bit emulation has no such door, and sends SIGSEGV instead.
    let source = r#"
#include <stdio.h>
#include <string.h>
int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "native")) { puts("native"); return 0; }
    int answer;
    __asm__ volatile("int $0x80" : "=a"(answer) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
    puts("came back"); return 0;
}
"#;
    if let Some(made) = cc(caller, "control", source, &[])
        && caller.program(&made, ["foreign"]).end().code != 0
    {
        return caller.skip("the host's kernel has no 32-bit system calls");
    }
    through_a_door(caller, source);
}

fn the_x32_door_is_closed_by_death(caller: &Caller) {
    // Outside, a kernel without x32 says ENOSYS; the filter is asked before, so it kills on every kernel.
    let source = r#"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "native")) { puts("native"); return 0; }
    syscall(0x40000000 | SYS_getpid);
    puts("came back"); return 0;
}
"#;
    through_a_door(caller, source);
}

/// The default profile, which ends the box at a denied system call.
fn killing(caller: &Caller) -> String {
    let profile = include_str!("../../profiles/default.toml");
    let text = format!("{profile}\n[kernel]\non_denied_syscall = \"kill\"\n");
    caller.file("kill.toml", text).to_str().unwrap().to_owned()
}

fn a_denied_call_ends_the_box_where_the_policy_says_so(caller: &Caller) {
    if !is_x86_64(caller) {
        return;
    }
    let policy = killing(caller);
    let boxed = calls(caller, &["--policy", &policy], "print(attempt(272, 0), flush=True)");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("signalled", 137));
    assert_eq!((boxed.stdout.as_str(), boxed.denied("unshare")), ("", 1));
    // Not only the process that tried: whoever sent it would send the next one.
    let code = "
if os.fork() == 0:
    attempt(272, 0); os._exit(0)
try: os.wait()
finally: print('went on', flush=True)
";
    let boxed = calls(caller, &["--policy", &policy], code);
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("signalled", 137), "{}", boxed.stdout);
    assert_eq!(boxed.denied("unshare"), 1);
}

fn an_allowed_call_does_not_end_the_box_where_denied_ones_would(caller: &Caller) {
    let policy = killing(caller);
    let boxed = caller.sh(&["--policy", &policy], "mkfifo /tmp/a && ls /tmp && (exit 3)");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", 3));
    assert_eq!(boxed.stdout, "a\n");
}

fn the_host_name_and_ipc_of_the_host_are_not_those_of_the_box(caller: &Caller) {
    let boxed = caller.sh(&[], "cat /proc/self/cgroup; uname -n; for n in user mnt pid net ipc uts cgroup; do readlink /proc/self/ns/$n; done").fine();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert!(!boxed.stdout.lines().any(|line| line == host.trim()), "{}", boxed.stdout);
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let own = std::fs::read_link(format!("/proc/self/ns/{kind}")).unwrap();
        let own = own.to_str().unwrap();
        let theirs = boxed.stdout.lines().find(|line| line.starts_with(&format!("{kind}:["))).unwrap();
        assert_ne!(theirs, own, "{kind}");
    }
    // Groups are seen from the box's own as from a root: nothing tells where the box hangs on the host.
    for line in boxed.stdout.lines().filter(|line| line.contains(':') && !line.contains('[')) {
        let path = line.rsplit(':').next().unwrap();
        assert!(!path.contains("blastbox"), "{line}");
    }
}
