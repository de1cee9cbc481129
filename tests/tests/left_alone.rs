//! Boxes whose daemon is killed and has no heir, or stands still: they end all the same. That takes more than a minute, in which nothing
//! happens, so these tests run beside others (`xtask/src/test/programs.rs`), where neither namespaces are counted nor files that root might have left elsewhere.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use blastbox_tests::census::{Census, Process, descendants, lives};
use blastbox_tests::daemon::Daemon;
use blastbox_tests::{Caller, both_ways, wait_until};
use rustix::process::Signal;

both_ways!(where_nobody_comes_survivors_end_too_and_a_stopped_daemon_does_not_lengthen_the_life_of_its_boxes);

const SURVIVES: &str = r#"accept = ["shared-kernel", "host-image", "shared-uid", "no-memory-limit", "no-cpu-limit",
    "no-pids-limit", "weak-landlock", "silent-denials", "swap-unlimited"]
[lifetime]
survives_daemon = "yes"
"#;

fn agents() -> Vec<Process> {
    descendants().into_iter().filter(|process| process.name == "blastbox-agent").collect()
}

/// Two daemons beside each other: one is killed, the other stands still meanwhile.
fn where_nobody_comes_survivors_end_too_and_a_stopped_daemon_does_not_lengthen_the_life_of_its_boxes(
    caller: &Caller,
) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::without_stock(caller);
    let policy = caller.file("survives.toml", SURVIVES).display().to_string();
    // One by its own deadline, one because nobody came within the minute.
    let short = daemon.ask(&["create", "--memory", "64MiB", "--policy", &policy, "--life", "2s"]);
    let long = daemon.ask(&["create", "--memory", "64MiB", "--policy", &policy, "--life", "1h"]);
    let survivors = agents();
    assert_eq!(survivors.len(), 2);
    daemon.kill();
    let left = || survivors.iter().filter(|agent| lives(agent)).count();

    let config = caller.place().join("daemon.toml").display().to_string();
    let place = caller.place();
    let mut stopped =
        Daemon::shipped(caller).with_config(config).in_state(place.join("other")).at(place.join("o"));
    stopped.start(None);
    assert!(stopped.await_answer());
    census.accept_files();
    let made = stopped.ask(&["create", "--memory", "64MiB", "--life", "3s"]);
    stopped.ask(&["exec", "--detach", &made, "--", "/bin/sleep", "600"]);
    let agent = stopped.agent().expect("an agent");
    stopped.signal(Signal::STOP);
    let goes_on = || {
        let stat = std::fs::read_to_string(format!("/proc/{agent}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    assert!(wait_until(|| left() == 1), "its time was over: {short}");
    // The keeper has half a minute to end it in its own way, and the warden five seconds more.
    assert!(
        wait_until(|| !goes_on()) || wait_until(|| !goes_on()),
        "it lives for as long as its daemon is stopped"
    );
    stopped.signal(Signal::CONT);
    assert!(wait_until(|| !stopped.ask(&["ps"]).contains(&made)));
    let receipt = stopped.ask(&["inspect", &made]);
    assert!(receipt.contains("timed_out"), "{receipt}");
    stopped.stop();

    assert!(wait_until(|| left() == 0) || wait_until(|| left() == 0), "nobody came: {long}");
    daemon.start(None);
    assert!(daemon.await_answer());
    assert_eq!(daemon.ask(&["ps", "--json"]), "[]");
    assert!(daemon.client(&["exec", &long, "--", "/bin/true"]).end().err.contains("gone"));
    daemon.stop();
    census.expect_nothing("nobody came, and a stopped daemon");
}
