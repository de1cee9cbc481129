//! Killing the processes of a box, whatever its tier is made of: nothing is left. Alone in its program, because it counts.

use blastbox_policy::Tier;
use blastbox_tests::census::{Census, family};
use blastbox_tests::tiers::Bench;
use blastbox_tests::{conform, daemon::signal, wait_until};
use rustix::process::Signal;

conform!(whoever_is_killed_nothing_is_left);

/// Every process of a run of this tier in turn, as many as there are: nothing is left of any.
fn whoever_is_killed_nothing_is_left(bench: &Bench<'_>) {
    let mut census = Census::begin(bench.caller);
    for next in 0.. {
        let (mut held, _said) = bench.start("echo up; sleep 30 & sleep 30");
        census.see();
        let mut all = family(held.id());
        all.sort_by_key(|process| process.pid);
        let victim = all.get(next);
        let name = victim.map_or("nobody", |victim| &victim.name);
        let carries = victim.is_some_and(|victim| carries_the_box(victim.pid, name));
        if let Some(victim) = victim {
            signal(victim.pid, Signal::KILL);
        }
        if carries {
            assert!(wait_until(|| held.is_over()), "{name} ({next}) killed: the run goes on without it");
        } else {
            // A process of the payload's own is not missed by anybody else.
            signal(held.id(), Signal::TERM);
        }
        held.end();
        census.expect_nothing(&format!("{name} ({next}) killed"));
        if victim.is_none() {
            let least = if bench.tier == Tier::Gvisor { 6 } else { 4 };
            assert!(next >= least, "only {next} processes were seen");
            return;
        }
    }
}

/// Whether nothing of the box may live on without this process.
fn carries_the_box(pid: u32, name: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let says = |word: &[u8]| line.split(|byte| *byte == 0).any(|part| part == word);
    name.starts_with("blastbox") || says(b"gofer") || says(b"boot")
}
