//! Killing the processes of a box, whatever its tier is made of, also of one that a daemon keeps: nothing is left. Alone in its program,
//! because it counts.

use blastbox_policy::Tier;
use blastbox_tests::census::{Census, family};
use blastbox_tests::daemon::{Daemon, signal};
use blastbox_tests::tiers::Bench;
use blastbox_tests::{Caller, both_ways, conform, wait_until};
use rustix::process::Signal;

conform!(whoever_is_killed_nothing_is_left, whoever_of_a_daemons_box_is_killed_the_next_has_nothing_of_it,);
both_ways!(whoever_of_a_daemons_wasm_box_is_killed_the_next_has_nothing_of_it);

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

fn whoever_of_a_daemons_box_is_killed_the_next_has_nothing_of_it(bench: &Bench<'_>) {
    let create = [&["create"][..], &bench.create(&[])].concat();
    of_a_daemons_box(bench.caller, &create, &["/bin/sh", "-c", "sleep 60 & sleep 60"], &["/bin/true"]);
}

fn whoever_of_a_daemons_wasm_box_is_killed_the_next_has_nothing_of_it(caller: &Caller) {
    let shelf = caller.blastbox_path().with_file_name("wasm");
    if !["blastbox-wasm", "js.guest"].iter().all(|name| shelf.join(name).is_file()) {
        caller.skip("the guest js is not built: `make wasm` builds it where its package can be fetched");
        return;
    }
    of_a_daemons_box(caller, &["create", "--tier", "wasm"], &["js", "-e", "for (;;);"], &["js", "-e", "1"]);
}

/// Kills in turn the first process of a daemon's box that runs something, the warden, and the daemon: whoever serves then, the same daemon
/// or the next, has nothing of that box and makes others.
fn of_a_daemons_box(caller: &Caller, create: &[&str], busy: &[&str], short: &[&str]) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::without_stock(caller);
    goes_on(&daemon, create, short, "nobody");
    daemon.stop();
    census.accept_files();
    for victim in ["first process", "warden", "daemon"] {
        daemon.start(None);
        assert!(daemon.await_answer(), "{victim}");
        let made = daemon.ask(create);
        daemon.ask(&[&["exec", "--detach", &made, "--"], busy].concat());
        census.see();
        let pid = match victim {
            "first process" => daemon.agent(),
            "warden" => daemon.warden(),
            _ => Some(daemon.id()),
        };
        assert!(pid.is_some(), "there is no {victim} to be killed");
        if victim == "daemon" {
            daemon.kill();
            daemon.start(None);
            assert!(daemon.await_answer(), "no daemon after one that was killed");
            assert_eq!(daemon.ask(&["ps", "--json"]), "[]");
        } else {
            signal(pid.unwrap_or_default(), Signal::KILL);
        }
        goes_on(&daemon, create, short, victim);
        daemon.stop();
        census.expect_nothing(&format!("{victim} of a daemon's box killed"));
    }
}

/// A daemon makes, uses and ends a box.
fn goes_on(daemon: &Daemon<'_>, create: &[&str], short: &[&str], victim: &str) {
    let (mut made, mut said) = (String::new(), String::new());
    // What is asked of a dead warden fails; what is asked after that does not.
    let is_made = wait_until(|| {
        let ended = daemon.client(create).end();
        made = ended.text().trim().to_owned();
        said = ended.err;
        ended.code == 0
    });
    assert!(is_made, "{victim} killed: no box is made any more: {said}");
    daemon.ask(&[&["exec", &made, "--"], short].concat());
    daemon.ask(&["kill", &made]);
}
