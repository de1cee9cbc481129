//! Boxes that outlive their daemon: whoever kills it, and whenever, the next one has them, with their names, their deadlines
//! and their running commands; everything else is gone, as ever.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "only tests; one that cannot work must fail at once"
)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use blastbox_engine::failpoint::{ADOPTION_STEPS, STEPS, TRANSITIONS};
use blastbox_tests::census::{Census, descendants};
use blastbox_tests::daemon::{Daemon, LIFE, end_tree, signal};
use blastbox_tests::freezer::leave_out_unreached;
use blastbox_tests::{Caller, both_ways, wait_until};
use rustix::process::Signal;

both_ways!(
    a_survivor_keeps_its_name_its_deadline_its_files_and_its_commands,
    a_daemon_killed_at_each_place_leaves_survivors_to_the_next_and_nothing_else,
    a_commands_own_time_is_over_also_with_the_next_daemon,
    a_box_whose_life_was_over_does_not_go_on_with_the_next_daemon,
    what_cannot_outlive_its_daemon_is_refused,
);

const ACCEPTED: &str = r#"accept = ["shared-kernel", "host-image", "shared-uid", "no-memory-limit", "no-cpu-limit",
    "no-pids-limit", "weak-landlock", "silent-denials", "swap-unlimited"]"#;
/// Eight bytes a line, so that a place in the output says which line it is.
const COUNT: &str = r#"i=0; while :; do printf "%07d\n" $i; i=$((i+1)); sleep 0.02; done"#;

/// What a daemon that takes its warden over with the box never comes to.
const KEPT: [&str; 2] = ["warden-noted", "warden-started"];

fn policy(caller: &Caller, more: &str) -> String {
    let text = format!("{ACCEPTED}\n{more}\n[lifetime]\nsurvives_daemon = \"yes\"\n");
    caller.file("survives.toml", text).display().to_string()
}

fn daemon<'a>(caller: &'a Caller, daemon: Daemon<'a>) -> Daemon<'a> {
    daemon.with_config(caller.file("daemon.toml", "[pool]\nmax = 0\n").display().to_string())
}

fn agents() -> usize {
    descendants().iter().filter(|process| process.name == "blastbox-agent").count()
}

/// The numbers that a counting command printed and that can still be had, which follow each other, from where the tape begins.
#[track_caller]
fn counted(daemon: &Daemon<'_>, made: &str, exec: &str) -> Vec<u64> {
    let logs = daemon.client(&["logs", made, exec]).end();
    assert_eq!(logs.code, 0, "{}", logs.err);
    let lost = logs.err.lines().find_map(|line| {
        line.strip_prefix("blastbox: ")?.strip_suffix(" bytes were overwritten")?.parse::<u64>().ok()
    });
    let text = logs.text();
    // A cut in the middle of a line leaves the rest of it.
    let lost = lost.unwrap_or(0);
    let (skip, first) = (usize::try_from((8 - lost % 8) % 8).expect("a few bytes"), lost.div_ceil(8));
    let whole = text.get(skip..).unwrap_or_default();
    let lines = whole.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let numbers: Vec<u64> = lines.map(|line| line.trim().parse().expect("a number")).collect();
    for (number, expected) in numbers.iter().zip(first..) {
        assert_eq!(*number, expected, "{lost} bytes are said to be lost:\n{text}");
    }
    numbers
}

/// Its command still prints, and what it prints is heard.
#[track_caller]
fn streams(daemon: &Daemon<'_>, made: &str, exec: &str, after: &str) {
    let before = counted(daemon, made, exec).last().copied();
    assert!(
        wait_until(|| counted(daemon, made, exec).last().copied() > before),
        "{after}: it prints no more"
    );
}

fn post(daemon: &Daemon<'_>, path: &str, body: &str) {
    let mut stream = UnixStream::connect(daemon.socket()).expect("reach the daemon");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("bound the test");
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: b\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).expect("send a request");
    let mut answer = [0; 10];
    stream.read_exact(&mut answer).expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 2"), "{path}: {}", String::from_utf8_lossy(&answer));
}

fn card(daemon: &Daemon<'_>, made: &str) -> serde_json::Value {
    serde_json::from_str(&daemon.ask(&["inspect", "--json", made])).expect("a card")
}

fn a_survivor_keeps_its_name_its_deadline_its_files_and_its_commands(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = daemon(caller, Daemon::shipped(caller));
    daemon.start(None);
    assert!(daemon.await_answer());
    let policy = policy(caller, "");
    let made = daemon.ask(&["create", "--memory", "64MiB", "--policy", &policy, "--life", "10m"]);
    let other = daemon.ask(&["create", "--memory", "64MiB"]);
    daemon.ask(&["exec", "--detach", &made, "--", "/bin/sh", "-c", COUNT]);
    // One that waits for its input, one that prints more than anybody reads, and one that ends while nobody is there.
    let begin = |body: &str| post(&daemon, &format!("/v1/boxes/{made}/execs"), body);
    begin(r#"{"command": ["/bin/cat"], "stdin": "stream"}"#);
    begin(r#"{"command": ["/bin/sh", "-c", "seq 1 1200000"], "hold": "10m"}"#);
    begin(r#"{"command": ["/bin/sh", "-c", "read go; echo over; exit 7"], "stdin": "stream"}"#);
    daemon.ask(&["exec", &made, "--", "/bin/sh", "-c", "echo mine > /tmp/file"]);
    post(&daemon, &format!("/v1/boxes/{made}/execs/2/stdin"), "one\n");
    assert!(wait_until(|| daemon.ask(&["logs", &made, "2"]) == "one"));
    streams(&daemon, &made, "1", "at first");
    // One that is stopped where it stands, where the host can do that.
    let frozen = daemon.ask(&["create", "--memory", "64MiB", "--policy", &policy, "--life", "10m"]);
    let is_frozen = daemon.client(&["pause", &frozen]).end().code == 0;
    let before = card(&daemon, &made);
    daemon.kill();
    daemon.start(None);
    assert!(daemon.await_answer());
    let after = card(&daemon, &made);
    for field in ["id", "tenant", "created_at", "ends_at", "policy", "phase"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    assert!(!daemon.ask(&["ps"]).contains(&other), "what does not survive is there");
    if is_frozen {
        assert_eq!(card(&daemon, &frozen)["phase"], "paused");
        daemon.ask(&["resume", &frozen]);
    }
    assert_eq!(daemon.ask(&["exec", &frozen, "--", "/bin/echo", "thawed"]), "thawed");
    daemon.ask(&["kill", &frozen]);
    streams(&daemon, &made, "1", "after the kill");
    assert_eq!(daemon.ask(&["exec", &made, "--", "/bin/cat", "/tmp/file"]), "mine");
    // Input goes on where it was.
    post(&daemon, &format!("/v1/boxes/{made}/execs/2/stdin"), "two\n");
    post(&daemon, &format!("/v1/boxes/{made}/execs/2/stdin/end"), "");
    let attached = daemon.client(&["attach", "--no-stdin", &made, "2"]).end();
    assert_eq!((attached.code, attached.text().as_str()), (0, "two\n"), "{}", attached.err);
    // What was printed and not read is there from a place that is told, to the end.
    let whole: String = (1..=1_200_000).map(|number| format!("{number}\n")).collect();
    let rest = daemon.client(&["attach", "--no-stdin", &made, "3"]).end();
    let lost = rest.err.lines().find_map(|line| {
        line.trim().strip_prefix("blastbox: ")?.strip_suffix(" bytes were overwritten")?.parse::<usize>().ok()
    });
    let lost = lost.expect("the tape of a killed daemon is lost, and told");
    // The tape, what waits for it, and a piece in between.
    assert!(lost <= (2 << 20) + (64 << 10), "{lost}");
    assert!(rest.code == 0 && whole.get(lost..) == Some(rest.text().as_str()), "{lost} {}", rest.err);
    post(&daemon, &format!("/v1/boxes/{made}/execs/4/stdin"), "go\n");
    assert_eq!(daemon.client(&["attach", "--no-stdin", &made, "4"]).end().code, 7);
    let ledger = std::fs::read_dir(daemon.state().join("ledger")).expect("a ledger");
    let recorded = ledger.flatten().any(|file| {
        std::fs::read_to_string(file.path())
            .is_ok_and(|text| text.contains("box_adopted") && text.contains(&made))
    });
    assert!(recorded, "the ledger does not have it");
    census.accept_files();
    daemon.ask(&["kill", &made]);
    daemon.stop();
    census.expect_nothing("a survivor");
}

fn a_daemon_killed_at_each_place_leaves_survivors_to_the_next_and_nothing_else(caller: &Caller) {
    let mut census = Census::begin(caller);
    let Some(built) = Daemon::with_failpoints(caller) else { return };
    let mut daemon = daemon(caller, built);
    daemon.start(None);
    assert!(daemon.await_answer());
    let policy = policy(caller, "");
    let made =
        daemon.ask(&["create", "--memory", "64MiB", "--policy", &policy, "--life", "1h", "--idle", "1h"]);
    daemon.ask(&["exec", "--detach", &made, "--", "/bin/sh", "-c", COUNT]);
    streams(&daemon, &made, "1", "at first");
    daemon.kill();
    for point in ADOPTION_STEPS.iter().chain(STEPS).chain(TRANSITIONS) {
        daemon.start(Some(point));
        let mut shell = None;
        if daemon.await_answer() {
            let mut life = daemon.script(LIFE);
            shell = Some(life.id());
            assert!(wait_until(|| daemon.is_stopped() || life.is_over()), "{point}");
            std::mem::forget(life);
        }
        if !daemon.is_stopped() && !KEPT.contains(point) {
            leave_out_unreached(caller, point);
        }
        census.see();
        daemon.kill();
        if let Some(shell) = shell {
            end_tree(shell);
            let pid = i32::try_from(shell).ok().and_then(rustix::process::Pid::from_raw).expect("a number");
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).ok();
        }
        daemon.start(None);
        assert!(daemon.await_answer(), "{point}");
        let listed: Vec<serde_json::Value> =
            serde_json::from_str(&daemon.ask(&["ps", "--json"])).expect("a list");
        let names: Vec<&str> = listed.iter().filter_map(|card| card["id"].as_str()).collect();
        assert_eq!(names, [made.as_str()], "{point}");
        assert!(wait_until(|| agents() == 1), "{point}: {} first processes are there", agents());
        streams(&daemon, &made, "1", point);
        daemon.kill();
    }
    daemon.start(None);
    assert!(daemon.await_answer());
    census.accept_files();
    daemon.ask(&["kill", &made]);
    daemon.stop();
    census.expect_nothing("the survivor of a whole matrix");
}

/// The daemon that was asked for it is killed before that time is over, and the next one has to know of it.
fn a_commands_own_time_is_over_also_with_the_next_daemon(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = daemon(caller, Daemon::shipped(caller));
    daemon.start(None);
    assert!(daemon.await_answer());
    let policy = policy(caller, "");
    let made =
        daemon.ask(&["create", "--memory", "64MiB", "--policy", &policy, "--life", "1h", "--idle", "1h"]);
    daemon.ask(&["exec", "--detach", &made, "--", "/bin/sh", "-c", COUNT]);
    streams(&daemon, &made, "1", "at first");
    // Where a busy host let the time pass before the kill, the command is over and unknown to the next daemon: once more, with more time.
    let ended = ["3s", "1m"].iter().find_map(|time| {
        let number = daemon.ask(&["exec", "--detach", "--timeout", time, &made, "--", "/bin/sleep", "1h"]);
        daemon.kill();
        daemon.start(None);
        assert!(daemon.await_answer());
        let attached = daemon.client(&["attach", "--no-stdin", &made, &number]).start();
        let ended = attached.end_within(Duration::from_secs(150));
        (ended.code == 124 || *time == "1m").then_some(ended)
    });
    let ended = ended.expect("the last one counts");
    assert_eq!(ended.code, 124, "{}", ended.err);
    assert!(ended.err.contains("the time of the command was over"), "{}", ended.err);
    // One without a time of its own goes on.
    streams(&daemon, &made, "1", "after the other one has ended");
    census.accept_files();
    daemon.ask(&["kill", &made]);
    daemon.stop();
    census.expect_nothing("a command whose time was over");
}

/// Killed in the moment between the two: its time is written down as over, and nothing has stopped it yet.
fn a_box_whose_life_was_over_does_not_go_on_with_the_next_daemon(caller: &Caller) {
    let mut census = Census::begin(caller);
    let Some(built) = Daemon::with_failpoints(caller) else { return };
    let mut daemon = daemon(caller, built);
    daemon.start(Some("box-overtime"));
    assert!(daemon.await_answer());
    let policy = policy(caller, "");
    let create = |life: &str| {
        let life = ["--policy", &policy, "--life", life, "--on-timeout", "pause"];
        daemon.ask(&[&["create", "--memory", "64MiB"][..], &life].concat())
    };
    let other = create("10m");
    let can_pause = daemon.client(&["pause", &other]).end().code == 0;
    let made = create("30s");
    daemon.ask(&["exec", "--detach", &made, "--", "/bin/sh", "-c", COUNT]);
    streams(&daemon, &made, "1", "at first");
    post(&daemon, &format!("/v1/boxes/{made}/deadline"), r#"{"life": "3s"}"#);
    assert!(wait_until(|| daemon.is_stopped()), "its life is not over");
    daemon.kill();
    daemon.start(None);
    assert!(daemon.await_answer());
    if can_pause {
        assert_eq!(card(&daemon, &made)["phase"], "paused");
        assert_eq!(card(&daemon, &other)["phase"], "paused");
        daemon.ask(&["resume", &made]);
        streams(&daemon, &made, "1", "after it was resumed");
    } else {
        // What cannot be stopped ends.
        assert!(wait_until(|| !daemon.ask(&["ps"]).contains(&made)));
    }
    census.accept_files();
    daemon.stop();
    census.expect_nothing("a survivor whose life was over");
}

fn what_cannot_outlive_its_daemon_is_refused(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = daemon(caller, Daemon::shipped(caller));
    daemon.start(None);
    assert!(daemon.await_answer());
    let alone = policy(caller, "");
    let ran = caller.blastbox(["run", "--policy", &alone, "--", "/bin/true"]).end();
    assert!(ran.code == 125 && ran.err.contains("survives_daemon"), "{}", ran.err);
    let workspace = caller.directory("project").display().to_string();
    let open = policy(caller, "[files]\nworkspace = \"read-only\"");
    let refused = daemon.client(&["create", "--policy", &open, "--workspace", &workspace]).end();
    assert!(refused.code != 0 && refused.err.contains("survives_daemon"), "{}", refused.err);
    let online = policy(caller, "[network]\nmode = \"allow\"\nallow = [{ host = \"example.com\" }]");
    let refused = daemon.client(&["create", "--policy", &online]).end();
    assert!(refused.code != 0 && refused.err.contains("survives_daemon"), "{}", refused.err);
    // Its neighbour is allowed, also by a warden that was started in the place of one that died.
    let alone = policy(caller, "");
    let made = daemon.ask(&["create", "--memory", "64MiB", "--policy", &alone]);
    daemon.ask(&["kill", &made]);
    signal(daemon.warden().expect("a warden"), Signal::KILL);
    let mut made = String::new();
    assert!(wait_until(|| {
        let ended = daemon.client(&["create", "--memory", "64MiB", "--policy", &alone]).end();
        made = ended.text().trim().to_owned();
        ended.code == 0
    }));
    daemon.kill();
    daemon.start(None);
    assert!(daemon.await_answer());
    assert!(daemon.ask(&["ps"]).contains(&made));
    census.accept_files();
    daemon.ask(&["kill", &made]);
    daemon.stop();
    census.expect_nothing("what cannot outlive its daemon");
}
