//! The limits: each is met, named in the receipt, and survived by the host.
//!
//! Every bomb here runs inside a box and has a number of its own at which it stops, so that a broken limit fails a test
//! and not the machine. Where this host gives the caller no cgroup, the receipt must say so by a gap, and what is left
//! (a limit per process or per user) is what the test holds.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on must fail at once"
)]

use blastbox_tests::{Boxed, Caller, both_ways, processes_naming, wait_until};
use blastbox_wire::receipt::LimitName;
use serde_json::json;

both_ways!(
    too_much_memory_ends_in_out_of_memory,
    memory_within_the_limit_is_given,
    scratch_files_count_as_memory,
    many_processes_sharing_memory_are_counted_together,
    a_fork_bomb_stops_at_the_limit_and_the_limit_is_named,
    processes_within_the_limit_are_given,
    threads_count_as_processes,
    two_busy_processes_get_no_more_than_their_share,
    what_is_ended_with_the_box_is_counted,
    a_program_that_will_not_end_is_ended_with_all_its_daemons,
    a_daemon_does_not_outlive_the_program_that_left_it,
    a_program_that_ends_in_time_is_not_touched,
    output_over_the_limit_ends_the_box,
    output_up_to_the_limit_arrives_whole,
    scratch_space_that_is_full_is_a_limit_with_a_name,
    a_file_cannot_grow_over_the_limit,
    a_process_cannot_open_more_files_than_the_limit,
    the_smallest_limits_that_a_policy_may_have_still_make_a_box,
    limits_of_processes_cannot_be_raised,
    a_box_cannot_put_itself_before_others,
    no_core_is_dumped,
    queues_and_locked_memory_are_bounded,
    a_box_takes_few_of_its_makers_watchers,
);

fn policy(caller: &Caller, rules: &str) -> String {
    let text = format!("{}\n{rules}", include_str!("../../profiles/default.toml"));
    caller.file("policy.toml", text).to_str().unwrap().to_owned()
}

/// Whether this run had to do without something, and said so.
fn has_gap(boxed: &Boxed, gap: &str) -> bool {
    boxed.receipt.gaps.iter().any(|line| line.code.as_str() == gap)
}

/// A child that has worked for 300 ms of processor time and is left behind: ended with the box, and waited for by nobody.
const HIDDEN_WORK: &str = r#"
import os, time
reader, writer = os.pipe()
if os.fork() == 0:
    while time.process_time() < 0.3: pass
    os.write(writer, b"x")
    time.sleep(60)
os.read(reader, 1)
"#;

fn what_is_ended_with_the_box_is_counted(caller: &Caller) {
    let boxed = caller.python(&[], HIDDEN_WORK);
    assert_eq!(boxed.receipt.outcome.as_str(), "exited", "{}", boxed.stderr);
    let together = ["/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cpu/cpuacct.usage"];
    if has_gap(&boxed, "no-cpu-limit") || !together.iter().any(|path| std::path::Path::new(path).exists()) {
        return caller.skip("this host's group of a box does not count processor time (SECURITY.md)");
    }
    let used = boxed.receipt.usage.cpu_micros.unwrap_or(0);
    assert!(used >= 300_000, "{used} µs");
}

/// Takes memory a mebibyte at a time, 400 at most, and touches every page.
const MEMORY_BOMB: &str = r#"
taken = []
for number in range(400):
    block = bytearray(1 << 20)
    block[::4096] = b"x" * 256
    taken.append(block)
print(len(taken))
"#;

fn too_much_memory_ends_in_out_of_memory(caller: &Caller) {
    let boxed = caller.python(&["--memory", "64MiB"], MEMORY_BOMB);
    assert_eq!(boxed.stdout, "", "it did not get all of it");
    if has_gap(&boxed, "no-memory-limit") {
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", 1));
        assert!(boxed.stderr.contains("MemoryError"), "{}", boxed.stderr);
        return;
    }
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("out_of_memory", 137));
    assert_eq!(boxed.receipt.limits_hit, [LimitName::Memory]);
    assert!(boxed.receipt.usage.oom_kills >= 1);
    assert!(boxed.receipt.usage.memory_peak_bytes.unwrap() <= 64 << 20);
}

fn memory_within_the_limit_is_given(caller: &Caller) {
    let boxed = caller.python(&["--memory", "512MiB"], &MEMORY_BOMB.replace("400", "100")).fine();
    assert_eq!((boxed.stdout.as_str(), boxed.receipt.usage.oom_kills), ("100\n", 0));
    assert_eq!(boxed.receipt.limits_hit, []);
}

fn scratch_files_count_as_memory(caller: &Caller) {
    let script = "head -c 200000000 /dev/zero >/tmp/big && echo written";
    let boxed = caller.sh(&["--memory", "64MiB", "--disk", "256MiB"], script);
    if has_gap(&boxed, "no-memory-limit") {
        return caller.skip("this caller gets no memory cgroup, which the receipt names as a gap");
    }
    assert!(!boxed.stdout.contains("written"));
    assert!(boxed.receipt.limits_hit.contains(&LimitName::Memory), "{:?}", boxed.receipt);
}

fn many_processes_sharing_memory_are_counted_together(caller: &Caller) {
    // Each of eight takes a third of what all may have.
    let code = r#"
import os, time
children = []
for number in range(8):
    child = os.fork()
    if child == 0:
        block = bytearray(24 << 20); block[::4096] = b"x" * (24 << 8)
        time.sleep(1); os._exit(0)
    children.append(child)
killed = sum(os.waitpid(child, 0)[1] == 9 for child in children)
print(killed)
"#;
    let boxed = caller.python(&["--memory", "64MiB"], code);
    if has_gap(&boxed, "no-memory-limit") {
        return caller.skip("this caller gets no memory cgroup, which the receipt names as a gap");
    }
    assert!(boxed.receipt.usage.oom_kills >= 1, "{:?}", boxed.receipt.usage);
    assert_eq!(boxed.receipt.limits_hit, [LimitName::Memory]);
}

/// Makes 300 processes at most, which wait until it is over, and says how many it got.
const FORK_BOMB: &str = r#"
import errno, os, signal, sys
made, answer = [], "ok"
for number in range(300):
    try: child = os.fork()
    except OSError as error: answer = errno.errorcode[error.errno]; break
    if child == 0: signal.pause(); os._exit(0)
    made.append(child)
print(len(made), answer, flush=True)
for child in made: os.kill(child, signal.SIGKILL)
for child in made: os.waitpid(child, 0)
sys.exit(3 if answer != "ok" else 0)
"#;

fn a_fork_bomb_stops_at_the_limit_and_the_limit_is_named(caller: &Caller) {
    let boxed = caller.python(&["--pids", "20"], FORK_BOMB);
    let (made, answer) = boxed.stdout.trim().split_once(' ').unwrap();
    assert_eq!(answer, "EAGAIN");
    let made: u32 = made.parse().unwrap();
    assert!((10..20).contains(&made), "{made}");
    assert_eq!(boxed.receipt.exit_code, 3);
    if has_gap(&boxed, "no-pids-limit") {
        // A limit per user id holds, and nobody counts how often.
        assert_eq!(boxed.outcome(), "exited");
        return;
    }
    assert_eq!(boxed.outcome(), "pids_exhausted");
    assert_eq!(boxed.receipt.limits_hit, [LimitName::Pids]);
    assert!(boxed.receipt.usage.pids_refused >= 1);
}

fn processes_within_the_limit_are_given(caller: &Caller) {
    let boxed = caller.python(&["--pids", "60"], &FORK_BOMB.replace("300", "40")).fine();
    assert_eq!((boxed.stdout.as_str(), boxed.receipt.usage.pids_refused), ("40 ok\n", 0));
    assert_eq!(boxed.receipt.limits_hit, []);
}

fn threads_count_as_processes(caller: &Caller) {
    let code = r#"
import threading
gate, made = threading.Event(), 0
try:
    for number in range(300): threading.Thread(target=gate.wait).start(); made += 1
except RuntimeError: pass
print(made); gate.set()
"#;
    let boxed = caller.python(&["--pids", "20"], code).fine();
    let made: u32 = boxed.stdout.trim().parse().unwrap();
    assert!((10..20).contains(&made), "{made}");
    assert_eq!(boxed.outcome(), "exited", "a program that copes has not failed");
    if !has_gap(&boxed, "no-pids-limit") {
        assert_eq!(boxed.receipt.limits_hit, [LimitName::Pids]);
    }
}

fn two_busy_processes_get_no_more_than_their_share(caller: &Caller) {
    let code = r#"
import os, time
end = time.monotonic() + 1
if os.fork() == 0:
    while time.monotonic() < end: pass
    os._exit(0)
while time.monotonic() < end: pass
os.wait()
"#;
    let boxed = caller.python(&["--cpus", "0.25"], code).fine();
    if has_gap(&boxed, "no-cpu-limit") {
        return caller.skip("this caller gets no cpu cgroup, which the receipt names as a gap");
    }
    // A quarter of the time that it took; without a limit it would be twice that time. Half leaves room for the first
    // period, which is given before it is counted.
    let (used, took) = (boxed.receipt.usage.cpu_micros.unwrap(), boxed.receipt.durations.run_micros);
    assert!(used <= took / 2, "{used} of {took} µs");
    assert!(used > 0);
}

/// Ignores every signal that can be ignored and leaves daemons behind: one in a new session, one forked twice.
const DAEMONS: &str = r#"
import os, signal, sys, time
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
def daemon(twice):
    if os.fork() == 0:
        os.setsid()
        if twice and os.fork() > 0: os._exit(0)
        os.execvp("python3", ["python3", "-c", "import time; time.sleep(120)", sys.argv[1]])
daemon(False); daemon(True)
"#;

fn marker(name: &str) -> String {
    let at = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
    format!("blastbox-tests-{name}-{}-{at}", std::process::id())
}

fn daemons(caller: &Caller, options: &[&str], last: &str) -> (Boxed, String) {
    let marker = marker("daemon");
    let words = ["run", "--json", "--lang", "python"].iter().chain(options);
    let code = format!("{DAEMONS}{last}");
    let held = caller.blastbox(words.copied().chain(["--", &marker])).input(code).start();
    // The control: its daemons are there, seen from the host, before it is over. The CLI is one that names it, too.
    let (cli, seen) = (held.id(), |pids: Vec<u32>, cli| pids.into_iter().filter(|&pid| pid != cli).count());
    assert!(wait_until(|| seen(processes_naming(&marker), cli) >= 2), "no daemons came");
    (held.end().boxed(), marker)
}

fn a_program_that_will_not_end_is_ended_with_all_its_daemons(caller: &Caller) {
    let (boxed, marker) = daemons(caller, &["--timeout", "2s"], "while True: time.sleep(60)");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("timed_out", 124));
    assert_eq!(boxed.receipt.limits_hit, [LimitName::Timeout]);
    assert!(processes_naming(&marker).is_empty(), "nothing is left when the run is over");
}

fn a_daemon_does_not_outlive_the_program_that_left_it(caller: &Caller) {
    // Stays until its daemons can be seen, then leaves them alone.
    let (boxed, marker) = daemons(caller, &[], "time.sleep(1)");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("exited", 0));
    assert!(processes_naming(&marker).is_empty(), "nothing is left when the run is over");
}

fn a_program_that_ends_in_time_is_not_touched(caller: &Caller) {
    let boxed = caller.sh(&["--timeout", "30s"], "sleep 0.2; echo done; exit 5");
    assert_eq!((boxed.outcome(), boxed.receipt.exit_code, boxed.stdout.as_str()), ("exited", 5, "done\n"));
    assert_eq!(boxed.receipt.limits_hit, []);
}

fn output_over_the_limit_ends_the_box(caller: &Caller) {
    let script = "trap '' PIPE; i=0; while [ $i -lt 2000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; sleep 60";
    for stream in ["", "exec >&2; "] {
        let boxed = caller.sh(&["--output-limit", "16KiB"], &format!("{stream}{script}"));
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code), ("output_limit", 153));
        assert_eq!(boxed.receipt.limits_hit, [LimitName::Output]);
        assert!(boxed.receipt.output.truncated);
        let printed = boxed.stdout.len() + boxed.stderr.len();
        assert!(printed <= 16 << 10, "{printed}");
        assert_eq!(boxed.receipt.output.stdout_bytes + boxed.receipt.output.stderr_bytes, printed as u64);
    }
}

fn output_up_to_the_limit_arrives_whole(caller: &Caller) {
    let script = "head -c 8192 /dev/zero | tr '\\0' a; head -c 8192 /dev/zero | tr '\\0' b >&2";
    let boxed = caller.sh(&["--output-limit", "16KiB"], script).fine();
    assert_eq!((boxed.stdout, boxed.stderr), ("a".repeat(8192), "b".repeat(8192)));
    assert!(!boxed.receipt.output.truncated);
    assert_eq!(boxed.receipt.limits_hit, []);
}

fn scratch_space_that_is_full_is_a_limit_with_a_name(caller: &Caller) {
    let fill = "head -c 2000000 /dev/zero >/tmp/x; true";
    let boxed = caller.sh(&["--disk", "1MiB"], fill).fine();
    assert_eq!(boxed.receipt.limits_hit, [LimitName::Disk]);
    assert_eq!(caller.sh(&["--disk", "4MiB"], fill).fine().receipt.limits_hit, []);
    let files = "i=0; while [ $i -lt 90 ]; do touch /tmp/$i 2>/dev/null; i=$((i+1)); done; true";
    let few = policy(caller, "[files]\ninodes = 64\n");
    assert_eq!(caller.sh(&["--policy", &few], files).fine().receipt.limits_hit, [LimitName::Inodes]);
    assert_eq!(caller.sh(&[], files).fine().receipt.limits_hit, []);
}

fn a_file_cannot_grow_over_the_limit(caller: &Caller) {
    let policy = policy(caller, "[files]\nfile_size = \"64KiB\"\n");
    let code = r#"
import errno, json, os
def grow(size):
    with open("/tmp/file", "wb", buffering=0) as file: return file.write(bytes(size))
def tried(what, *arguments):
    try: return what(*arguments)
    except OSError as error: return errno.errorcode[error.errno]
file = open("/tmp/other", "wb", buffering=0)
print(json.dumps([tried(grow, 65536), tried(grow, 65537), tried(os.truncate, "/tmp/file", 65537),
    tried(os.posix_fallocate, file.fileno(), 0, 65537), tried(os.pwrite, file.fileno(), b"x", 65536)]))
"#;
    let boxed = caller.python(&["--policy", &policy], code).fine();
    assert_eq!(boxed.json(), json!([65536, 65536, "EFBIG", "EFBIG", "EFBIG"]));
    // Who does not ignore the signal dies of it.
    let boxed = caller.sh(&["--policy", &policy], "exec head -c 100000 /dev/zero >/tmp/file");
    assert_eq!((boxed.outcome(), boxed.receipt.signal), ("signalled", Some(25)));
}

fn a_process_cannot_open_more_files_than_the_limit(caller: &Caller) {
    let policy = policy(caller, "[files]\nopen_files = 32\n");
    let code = r#"
import errno, json, os
opened, answer = 0, "ok"
try:
    for number in range(200): os.open("/dev/null", os.O_RDONLY); opened += 1
except OSError as error: answer = errno.errorcode[error.errno]
print(json.dumps([opened, answer]))
"#;
    assert_eq!(caller.python(&["--policy", &policy], code).fine().json(), json!([29, "EMFILE"]));
    assert_eq!(caller.python(&[], code).fine().json(), json!([200, "ok"]));
}

fn the_smallest_limits_that_a_policy_may_have_still_make_a_box(caller: &Caller) {
    let rules = "[kernel]\npids = 2\nmemory = \"4MiB\"\n[files]\ninodes = 16\nopen_files = 16\nfile_size = \"4KiB\"\ndisk = \"4KiB\"\n";
    let boxed = caller.run(&["--policy", &policy(caller, rules)], &["echo", "small"]).fine();
    assert_eq!(boxed.stdout, "small\n");
}

fn limits_of_processes_cannot_be_raised(caller: &Caller) {
    let code = r#"
import json, resource as r
answers = {}
for name in ("NOFILE", "FSIZE", "NPROC", "MEMLOCK", "CORE", "STACK", "SIGPENDING", "MSGQUEUE", "NICE", "RTPRIO"):
    number = getattr(r, "RLIMIT_" + name)
    before = r.getrlimit(number)
    for hard in (before[1] + 1, r.RLIM_INFINITY):
        try: r.setrlimit(number, (before[0], hard))
        except (ValueError, OSError): pass
    answers[name] = "held" if r.getrlimit(number) == before and before[1] != r.RLIM_INFINITY else str(r.getrlimit(number))
r.setrlimit(r.RLIMIT_NOFILE, (64, 64))
answers["lowered"] = r.getrlimit(r.RLIMIT_NOFILE)
print(json.dumps(answers))
"#;
    let seen = caller.python(&[], code).fine().json();
    for (limit, answer) in seen.as_object().unwrap().iter().filter(|(limit, _)| *limit != "lowered") {
        assert_eq!(answer, "held", "{limit}");
    }
    assert_eq!(seen["lowered"], json!([64, 64]), "to ask for less is allowed");
}

fn a_box_cannot_put_itself_before_others(caller: &Caller) {
    let code = r#"
import errno, json, os
def tried(what, *arguments):
    try: what(*arguments); return "ok"
    except OSError as error: return errno.errorcode[error.errno]
def score(value):
    with open("/proc/self/oom_score_adj", "w") as file: file.write(value)
print(json.dumps({"nicer": tried(os.nice, -1), "fifo": tried(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1)),
    "round": tried(os.sched_setscheduler, 0, os.SCHED_RR, os.sched_param(1)), "idle": tried(os.sched_setscheduler, 0, os.SCHED_IDLE, os.sched_param(0)),
    "less": tried(os.nice, 1), "protected": tried(score, "-1000"), "policy": os.sched_getscheduler(os.getpid())}))
"#;
    let seen = caller.python(&[], code).fine().json();
    assert!(["EPERM", "EACCES"].contains(&seen["nicer"].as_str().unwrap()), "{seen}");
    assert_eq!((&seen["fifo"], &seen["round"]), (&"EPERM".into(), &"EPERM".into()));
    assert_eq!((&seen["less"], &seen["idle"]), (&"ok".into(), &"ok".into()), "to step back is allowed");
    assert_eq!(seen["protected"], "EACCES", "it stays the first to go when memory runs out");
}

fn no_core_is_dumped(caller: &Caller) {
    // A limit of 0 would still hand the memory of a dying process to a host program that `core_pattern` pipes it to; 1
    // does not. So it is 1, and stays 1 even for a program that asks for 0.
    let code = r#"
import json, os, resource as r, signal
seen = [r.getrlimit(r.RLIMIT_CORE)]
for limit in ((0, 0), (0, 1), (r.RLIM_INFINITY, r.RLIM_INFINITY)):
    try: r.setrlimit(r.RLIMIT_CORE, limit)
    except (ValueError, OSError): pass
    seen.append(r.getrlimit(r.RLIMIT_CORE))
print(json.dumps(seen), flush=True)
os.kill(os.getpid(), signal.SIGQUIT)
"#;
    let boxed = caller.python(&[], code);
    assert_eq!(boxed.json(), json!([[1, 1], [1, 1], [1, 1], [1, 1]]));
    assert_eq!((boxed.outcome(), boxed.receipt.signal), ("signalled", Some(3)));
}

fn queues_and_locked_memory_are_bounded(caller: &Caller) {
    let code = r#"
import ctypes, errno, json, mmap, resource
libc = ctypes.CDLL(None, use_errno=True)
libc.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def lock(size):
    room = mmap.mmap(-1, size)
    ctypes.set_errno(0)
    at = ctypes.addressof(ctypes.c_char.from_buffer(room))
    keep.append(room)
    return "ok" if libc.mlock(at, size) == 0 else errno.errorcode[ctypes.get_errno()]
keep = []
print(json.dumps({"little": lock(16 << 10), "much": lock(1 << 20), "queue": resource.getrlimit(resource.RLIMIT_MSGQUEUE)[1]}))
"#;
    let seen = caller.python(&[], code).fine().json();
    assert_eq!(seen, json!({"little": "ok", "much": "ENOMEM", "queue": 0}));
}

/// Watchers of a box count as its maker's: on most hosts a user has 128 of them, root too.
fn a_box_takes_few_of_its_makers_watchers(caller: &Caller) {
    let code = r#"
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
count = 0
while count < 100 and libc.inotify_init1(0) >= 0: count += 1
print(count, errno.errorcode[ctypes.get_errno()])
"#;
    let printed = caller.python(&[], code).fine().stdout;
    // Fewer where its maker has some of them already, or the host gives fewer.
    let count = printed.strip_suffix(" EMFILE\n").and_then(|count| count.parse::<u32>().ok());
    assert!(count.is_some_and(|count| (1..=32).contains(&count)), "{printed}");
}
