//! Boxes whose daemon is killed and has no heir, or stands still: they end all the same. That takes most of a minute each, in which nothing
//! happens, so these tests run beside others (`xtask/src/test/programs.rs`), where neither namespaces are counted nor files that root might have left elsewhere.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use blastbox_tests::census::{Census, descendants};
use blastbox_tests::daemon::Daemon;
use blastbox_tests::{Caller, both_ways, wait_until};
use rustix::process::Signal;

both_ways!(where_nobody_comes_survivors_end_too, a_stopped_daemon_does_not_lengthen_the_life_of_its_boxes,);

const SURVIVES: &str = r#"accept = ["shared-kernel", "host-image", "shared-uid", "no-memory-limit", "no-cpu-limit",
    "no-pids-limit", "weak-landlock", "silent-denials", "swap-unlimited"]
[lifetime]
survives_daemon = "yes"
"#;

fn agents() -> usize {
    descendants().iter().filter(|process| process.name == "blastbox-agent").count()
}

fn where_nobody_comes_survivors_end_too(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::without_stock(caller);
    let policy = caller.file("survives.toml", SURVIVES).display().to_string();
    // One by its own deadline, one because nobody came within the minute.
    let short = daemon.ask(&["create", "--memory", "64MiB", "--policy", &policy, "--life", "2s"]);
    let long = daemon.ask(&["create", "--memory", "64MiB", "--policy", &policy, "--life", "1h"]);
    assert_eq!(agents(), 2);
    daemon.kill();
    census.accept_files();
    assert!(wait_until(|| agents() == 1), "its time was over: {short}");
    assert!(wait_until(|| agents() == 0) || wait_until(|| agents() == 0), "nobody came: {long}");
    daemon.start(None);
    assert!(daemon.await_answer());
    assert_eq!(daemon.ask(&["ps", "--json"]), "[]");
    assert!(daemon.client(&["exec", &long, "--", "/bin/true"]).end().err.contains("gone"));
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end().code, 0);
    census.expect_nothing("nobody came");
}

fn a_stopped_daemon_does_not_lengthen_the_life_of_its_boxes(caller: &Caller) {
    let mut census = Census::begin(caller);
    let mut daemon = Daemon::without_stock(caller);
    census.accept_files();
    let made = daemon.ask(&["create", "--memory", "64MiB", "--life", "3s"]);
    daemon.ask(&["exec", "--detach", &made, "--", "/bin/sleep", "600"]);
    let agent = daemon.agent().expect("an agent");
    daemon.signal(Signal::STOP);
    let lives = || {
        let stat = std::fs::read_to_string(format!("/proc/{agent}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    };
    // The keeper has half a minute to end it in its own way, and the warden five seconds more.
    assert!(
        wait_until(|| !lives()) || wait_until(|| !lives()),
        "it lives for as long as its daemon is stopped"
    );
    daemon.signal(Signal::CONT);
    assert!(wait_until(|| !daemon.ask(&["ps"]).contains(&made)));
    let receipt = daemon.ask(&["inspect", &made]);
    assert!(receipt.contains("timed_out"), "{receipt}");
    daemon.stop();
    census.expect_nothing("a stopped daemon");
}
