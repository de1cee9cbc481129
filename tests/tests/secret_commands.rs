//! Secrets that a program of the operator prints, in a daemon, which may start no program itself.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use blastbox_tests::census::{Process, family, lives};
use blastbox_tests::internet::{Internet, PUBLIC};
use blastbox_tests::{Caller, Served, both_ways, canary, processes_naming, text, wait_until};
use rustix::process::{Pid, Signal, kill_process};

both_ways!(
    what_a_command_prints_reaches_its_server_and_nobody_else,
    a_command_that_fails_floods_or_hangs_means_no_box_and_leaves_nothing,
    without_the_process_that_runs_them_there_are_no_such_secrets,
    what_a_command_has_started_ends_with_the_process_that_runs_them,
);

const POLICY: &str = "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\", \"shared-uid\", \
    \"no-memory-limit\", \"no-cpu-limit\", \"no-pids-limit\", \"weak-landlock\", \"swap-unlimited\", \"silent-denials\"]\n\
    [network]\nmode = \"allow\"\nallow = [{ host = \"api.example.com\", tls = \"inspect\" }]\n\
    [credentials]\nmode = \"brokered\"\nbind = [{ secret = \"NAME\", host = \"api.example.com\" }]\n";

/// A policy that binds the secret of this name.
fn binding(caller: &Caller, secret: &str) -> PathBuf {
    caller.file(&format!("{secret}.policy.toml"), POLICY.replace("NAME", secret))
}

/// The operator's file: each secret is what a shell prints.
fn sources(caller: &Caller, commands: &[(&str, &str)]) -> PathBuf {
    let entry = |(name, script): &(&str, &str)| {
        format!(
            "[secrets.{name}]\nhosts = [\"api.example.com\"]\ncommand = [\"/bin/sh\", \"-c\", {script:?}]\n"
        )
    };
    let path = caller.file("secrets.toml", commands.iter().map(entry).collect::<String>());
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn clerk(daemon: &Served<'_>) -> Option<Process> {
    family(daemon.id()).into_iter().find(|process| process.name == "blastbox-clerk")
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
}

fn what_a_command_prints_reaches_its_server_and_nobody_else(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    internet.name("api.example.com", &[&[PUBLIC]]);
    if !internet.secure_echo(caller, "api.example.com") {
        return;
    }
    let (secret, seen) = (canary(), caller.place().join("seen"));
    let token = caller.file("token", format!("{{\"secret\": \"{secret}\", \"ttl\": 600}}"));
    std::fs::set_permissions(&token, std::fs::Permissions::from_mode(0o600)).unwrap();
    // Twice, for two boxes: it is asked anew for each.
    let script = format!("env >> {0}; ls -l /proc/$$/fd >> {0}; cat {1}", text(&seen), text(&token));
    let sources = sources(caller, &[("minted", &script)]);
    let daemon = Served::start_in(&internet, caller, &["--secrets", text(&sources)]);
    assert!(clerk(&daemon).is_some());
    let policy = binding(caller, "minted");
    for _ in 0..2 {
        let made = daemon.ask(["create", "--policy", text(&policy)]);
        let code = "import urllib.request; print(urllib.request.urlopen('https://api.example.com/').read().decode())";
        let said = daemon.ask(["exec", &made, "--", "/usr/bin/python3", "-c", code]);
        assert!(said.contains("Bearer ***") && !said.contains(&secret), "{said}");
        assert!(!daemon.sh(&made, "env; cat /proc/*/environ").contains(&secret));
    }
    let requests = internet.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().all(|head| head.contains(&format!("Bearer {secret}\r\n"))), "{requests:?}");
    let seen = std::fs::read_to_string(&seen).unwrap();
    assert_eq!(seen.matches("\nPATH=").count() + usize::from(seen.starts_with("PATH=")), 2, "{seen}");
    // Cargo's variables are in every test, and so were in the daemon.
    assert!(!seen.contains("CARGO") && !seen.contains("socket:") && !seen.contains("/state/"), "{seen}");
    let ended = daemon.stop();
    assert!(!ended.err.contains(&secret) && !ended.text().contains(&secret));
    let mut ledger = String::new();
    for entry in std::fs::read_dir(caller.place().join("state/ledger")).unwrap() {
        let written = std::fs::read(entry.unwrap().path()).unwrap();
        ledger.push_str(&String::from_utf8_lossy(&written));
    }
    assert!(!ledger.contains(&secret));
    // Each use stands there, and where each connection led, by which rule.
    let address = format!("\"address\":\"{PUBLIC}\"");
    for (kind, parts) in [
        (
            "\"secret_lent\"",
            ["\"secret\":\"minted\"", "\"target\":\"api.example.com\"", "\"request\":\"GET /\""],
        ),
        ("\"network_opened\"", ["\"target\":\"api.example.com\"", &address, "\"rule\":\"api.example.com\""]),
    ] {
        let lines: Vec<&str> = ledger.lines().filter(|line| line.contains(kind)).collect();
        let whole = lines.iter().all(|line| parts.iter().all(|part| line.contains(part)));
        assert!(lines.len() == 2 && whole, "{kind}: {lines:?}");
    }
}

fn a_command_that_fails_floods_or_hangs_means_no_box_and_leaves_nothing(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    let marker = canary();
    let sources = sources(
        caller,
        &[
            ("fails", "echo leaked-by-failure; echo leaked-by-failure >&2; exit 3"),
            ("floods", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done"),
            ("hangs", &format!("sleep 1000 {marker} || sleep 1000; : {marker}")),
            ("works", "echo a-value-that-is-long-enough"),
        ],
    );
    let missing = "[secrets.missing]\nhosts = [\"api.example.com\"]\ncommand = [\"/no/such/program\"]\n";
    let all = std::fs::read_to_string(&sources).unwrap() + missing;
    std::fs::write(&sources, all).unwrap();
    let daemon = Served::start_in(&internet, caller, &["--secrets", text(&sources)]);
    let refused = |secret: &str| {
        let policy = binding(caller, secret);
        let ended = daemon.blastbox(["create", "--policy", text(&policy)]).end();
        assert!(ended.code != 0 && ended.text().is_empty(), "{}{}", ended.text(), ended.err);
        assert!(!ended.err.contains("leaked") && !ended.err.contains("xxxx"), "{}", ended.err);
        ended.err
    };
    let (failed, missing, flood) = (refused("fails"), refused("missing"), refused("floods"));
    assert!(failed.contains("/bin/sh ended with exit status: 3"), "{failed}");
    assert!(missing.contains("cannot run /no/such/program"), "{missing}");
    assert!(flood.contains("more than 8 KiB"), "{flood}");
    let hung = refused("hangs");
    assert!(hung.contains("took longer than 20 seconds"), "{hung}");
    // With everything that it has started.
    assert!(wait_until(|| processes_naming(&marker).is_empty()), "{:?}", processes_naming(&marker));
    // And the next is served.
    daemon.ask(["create", "--policy", text(&binding(caller, "works"))]);
}

fn without_the_process_that_runs_them_there_are_no_such_secrets(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    let marker = canary();
    let hangs = format!("sleep 1000; : {marker}");
    let sources = sources(caller, &[("works", "echo a-value-that-is-long-enough"), ("hangs", &hangs)]);
    let daemon = Served::start_in(&internet, caller, &["--secrets", text(&sources)]);
    let policy = binding(caller, "works");
    daemon.ask(["create", "--policy", text(&policy)]);
    kill(clerk(&daemon).unwrap().pid);
    assert!(wait_until(|| clerk(&daemon).is_none()));
    let ended = daemon.blastbox(["create", "--policy", text(&policy)]).end();
    assert!(ended.code != 0 && ended.text().is_empty(), "{}{}", ended.text(), ended.err);
    assert!(
        ended.err.contains("secret works: the process that runs the commands of secrets"),
        "{}",
        ended.err
    );
    daemon.ask(["create"]);
    daemon.stop();
    // However a daemon goes, the process goes with it, and what it runs.
    let daemon = Served::start_in(&internet, caller, &["--secrets", text(&sources)]);
    let hanging = daemon.blastbox(["create", "--policy", text(&binding(caller, "hangs"))]).start();
    assert!(wait_until(|| !processes_naming(&marker).is_empty()), "the command was never run");
    let clerk = clerk(&daemon).unwrap();
    kill(daemon.id());
    let gone = || !lives(&clerk) && processes_naming(&marker).is_empty();
    assert!(wait_until(gone), "{:?}", processes_naming(&marker));
    assert_ne!(hanging.end().code, 0);
}

fn what_a_command_has_started_ends_with_the_process_that_runs_them(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    let marker = canary();
    let starts = format!("sh -c 'sleep 1000; : {marker}' & sh -c 'sleep 1000; : {marker}'; : {marker}");
    let sources = sources(caller, &[("starts", &starts)]);
    let daemon = Served::start_in(&internet, caller, &["--secrets", text(&sources)]);
    let hanging = daemon.blastbox(["create", "--policy", text(&binding(caller, "starts"))]).start();
    // The command, which names it twice over, and its two children.
    assert!(wait_until(|| processes_naming(&marker).len() >= 3), "{:?}", processes_naming(&marker));
    kill(clerk(&daemon).unwrap().pid);
    assert!(wait_until(|| processes_naming(&marker).is_empty()), "{:?}", processes_naming(&marker));
    assert_ne!(hanging.end().code, 0);
    daemon.ask(["create"]);
}
