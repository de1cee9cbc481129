//! Machines beside each other in one daemon, for tests that end one of them and look what becomes of the others.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use crate::Caller;
use crate::census::{Census, begun_at, family};
use crate::daemon::Daemon;
use crate::machines::{PATIENCE, Workshop};

/// Groups of a warden with one box: that one's, those in stock, and one that is about to be.
const OWN_GROUPS: usize = 6;
/// Between two looks for what is there for a moment only.
pub const GLANCE: Duration = Duration::from_millis(5);
/// Between two looks for what comes to stay: each starts a program, or reads all processes of the host.
const PAUSE: Duration = Duration::from_millis(50);
/// Asks for a machine.
pub const CREATE: [&str; 9] =
    ["create", "--tier", "microvm", "--accept", "emulated-cpu", "--image", "tools", "--memory", "256MiB"];

/// Whether it comes to be so, in the time that machines take.
pub fn eventually(holds: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// What a client says who succeeds.
#[track_caller]
pub fn fine(daemon: &Daemon<'_>, words: &[&str]) -> String {
    let ended = daemon.client(words).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{words:?}: {}", ended.err);
    ended.text().trim().to_owned()
}

/// The machines of a daemon, the oldest first.
pub fn machines(daemon: &Daemon<'_>) -> Vec<u32> {
    let is_qemu = |pid: u32| {
        // By its first argument: what the kernel calls a program that was started from a descriptor differs.
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"qemu-system"))
    };
    let mut found: Vec<u32> = family(daemon.id()).iter().map(|process| process.pid).collect();
    found.retain(|pid| is_qemu(*pid));
    found.sort_by_key(|pid| begun_at(*pid));
    found
}

/// The boxes of a daemon.
pub fn boxes(daemon: &Daemon<'_>) -> Vec<String> {
    let listed: Vec<serde_json::Value> =
        serde_json::from_str(&daemon.ask(&["ps", "--json"])).expect("a list");
    listed.iter().filter_map(|card| card.get("id")?.as_str().map(str::to_owned)).collect()
}

/// A daemon with a template in its store, and what is there before it does anything.
pub fn begin<'a>(caller: &'a Caller, census: &mut Census) -> Option<Daemon<'a>> {
    let workshop = Workshop::new(caller)?;
    workshop.template(&[]);
    let config = caller.file("daemon.toml", "[pool]\nmax = 0\n").display().to_string();
    let mut daemon = Daemon::shipped(caller).with_config(config).with_store(workshop.store.clone());
    daemon.start(None);
    assert!(daemon.await_answer());
    census.accept_files();
    census.expect_file("state/snapshots");
    Some(daemon)
}

/// Removes what a step made and somebody asked for: boxes, and what was kept.
pub fn clear(daemon: &Daemon<'_>, but: &[String]) {
    for id in boxes(daemon).iter().filter(|id| !but.contains(id)) {
        // It may have been about to end.
        daemon.client(&["kill", id]).end();
    }
    for word in fine(daemon, &["snapshot", "ls"]).split_whitespace().filter(|word| word.starts_with("sn_")) {
        fine(daemon, &["snapshot", "rm", word]);
    }
}

/// A command in a box that lives.
#[track_caller]
pub fn answers(daemon: &Daemon<'_>, made: &str, after: &str) {
    assert_eq!(fine(daemon, &["exec", made, "--", "echo", "on"]), "on", "{after}");
}

/// What is left beside a daemon that lives, with one box. Its warden has groups in stock, which nobody can tell from those that were
/// left: so many are its own, and each step would leave more.
pub fn beside(census: &Census, daemon: &Daemon<'_>) -> Vec<String> {
    let mut left = census.left();
    let groups: BTreeSet<&str> =
        left.iter().filter_map(|line| line.rsplit_once("/bx_")).map(|(_, id)| id).collect();
    let many = (groups.len() > OWN_GROUPS).then(|| format!("{} groups", groups.len()));
    left.retain(|line| line.starts_with("file ") || line.starts_with("mount "));
    left.extend(many);
    left.extend(machines(daemon).iter().skip(1).map(|pid| format!("machine {pid}")));
    left
}

/// Each of them began as a copy of one machine, which has the same memory, and so would draw and be called the same.
#[track_caller]
pub fn expect_different(said: &[String]) {
    let lines: Vec<Vec<&str>> = said.iter().map(|said| said.lines().collect()).collect();
    for (place, what) in ["randomness", "a place in memory", "the name", "the number"].iter().enumerate() {
        let mut values: Vec<&str> = lines.iter().filter_map(|lines| lines.get(place).copied()).collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), said.len(), "{what}: {said:?}");
    }
}
