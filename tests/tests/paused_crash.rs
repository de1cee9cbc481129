//! Killing a daemon, or the machine itself, while a machine is written to disk: a box that lies there is whole and goes on, every other
//! one is gone, and nothing is left beside it.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::path::Path;

use blastbox_engine::failpoint::COPY_STEPS;
use blastbox_tests::census::Census;
use blastbox_tests::daemon::{Daemon, signal};
use blastbox_tests::herd::CREATE;
use blastbox_tests::machines::{ONE_AT_A_TIME, PATIENCE, Workshop};
use blastbox_tests::{Caller, both_ways, wait_slowly, wait_until, whoever_asks};
use rustix::process::Signal;

both_ways!(a_daemon_killed_while_it_writes_a_machine_leaves_a_whole_one_or_none);
whoever_asks!(a_machine_killed_while_it_is_written_is_whole_on_disk_or_gone);

#[track_caller]
fn fine(daemon: &Daemon<'_>, words: &[&str]) -> String {
    let ended = daemon.client(words).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{words:?}: {}", ended.err);
    ended.text().trim().to_owned()
}

fn create(daemon: &Daemon<'_>) -> String {
    fine(daemon, &CREATE)
}

/// What lies beside the daemon's state of machines that were written.
fn files(daemon: &Daemon<'_>) -> Vec<String> {
    let listed = fs::read_dir(daemon.state().join("snapshots")).into_iter().flatten().flatten();
    let names = listed.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| Path::new(name).extension().is_some_and(|end| end == "snapshot")).collect()
}

/// A machine with something in its memory, asked to be written by a daemon that stops itself there. Its name.
fn stop_at(daemon: &mut Daemon<'_>, point: &str) -> (String, blastbox_tests::Held) {
    daemon.start(Some(point));
    assert!(daemon.await_answer(), "{point}");
    let made = create(daemon);
    fine(daemon, &["exec", &made, "--", "sh", "-c", "echo kept > /tmp/kept"]);
    let words =
        if point == "snapshot-kept" { vec!["snapshot", &made] } else { vec!["pause", "--to-disk", &made] };
    let mut asked = daemon.client(&words).start();
    let begun = std::time::Instant::now();
    while !daemon.is_stopped() && !asked.is_over() && begun.elapsed() < PATIENCE {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(daemon.is_stopped(), "{point}: it was never there");
    (made, asked)
}

/// A box on disk goes on with what it had, and leaves no file.
#[track_caller]
fn goes_on(daemon: &Daemon<'_>, made: &str, point: &str) {
    assert!(daemon.ask(&["ps"]).contains("paused, on disk"), "{point}");
    fine(daemon, &["resume", made]);
    assert_eq!(fine(daemon, &["exec", made, "--", "cat", "/tmp/kept"]), "kept", "{point}");
    assert!(files(daemon).is_empty(), "{point}");
    daemon.ask(&["kill", made]);
}

fn each_place(caller: &Caller, check: impl Fn(&mut Daemon<'_>, &str, (&str, blastbox_tests::Held))) {
    let _turn = ONE_AT_A_TIME.lock();
    let mut census = Census::begin(caller);
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.template(&[]);
    let Some(daemon) = Daemon::with_failpoints(caller) else { return };
    let config = caller.file("daemon.toml", "[pool]\nmax = 0\n").display().to_string();
    let mut daemon = daemon.with_config(config).with_store(workshop.store.clone());
    // What is made once stays: the places of templates and snapshots.
    daemon.start(None);
    assert!(daemon.await_answer());
    let made = create(&daemon);
    let name = fine(&daemon, &["snapshot", &made]);
    daemon.ask(&["snapshot", "rm", &name]);
    daemon.ask(&["kill", &made]);
    daemon.stop();
    census.accept_files();
    for point in COPY_STEPS {
        let (made, asked) = stop_at(&mut daemon, point);
        census.see();
        check(&mut daemon, point, (&made, asked));
        assert_eq!(daemon.ask(&["ps", "--json"]), "[]", "{point}");
        assert!(files(&daemon).is_empty(), "{point}: {:?}", files(&daemon));
        daemon.stop();
        census.expect_nothing(point);
    }
}

fn a_daemon_killed_while_it_writes_a_machine_leaves_a_whole_one_or_none(caller: &Caller) {
    each_place(caller, |daemon, point, (made, asked)| {
        daemon.kill();
        drop(asked);
        daemon.start(None);
        assert!(daemon.await_answer(), "{point}");
        match point {
            "box-on-disk" => goes_on(daemon, made, point),
            // A snapshot is nobody's life: it is there, whole, and its box is not.
            "snapshot-kept" => {
                let listed = fine(daemon, &["snapshot", "ls"]);
                let name =
                    listed.split_whitespace().find(|word| word.starts_with("sn_")).expect("a snapshot");
                let copy = fine(daemon, &["create", "--snapshot", name]);
                assert_eq!(fine(daemon, &["exec", &copy, "--", "cat", "/tmp/kept"]), "kept");
                daemon.ask(&["kill", &copy]);
                daemon.ask(&["snapshot", "rm", name]);
            }
            _ => {}
        }
    });
}

fn a_machine_killed_while_it_is_written_is_whole_on_disk_or_gone(caller: &Caller) {
    each_place(caller, |daemon, point, (made, asked)| {
        let machine = daemon.agent();
        assert!(machine.is_some() || point == "box-on-disk", "{point}: nobody to kill");
        if let Some(machine) = machine {
            signal(machine, Signal::KILL);
        }
        daemon.signal(Signal::CONT);
        let ended = asked.end_within(PATIENCE);
        assert!(wait_until(|| !daemon.is_stopped()));
        match (point, ended.code) {
            ("snapshot-kept", 0) => {
                let name = ended.text().trim().to_owned();
                daemon.ask(&["snapshot", "rm", &name]);
            }
            (_, 0) => goes_on(daemon, made, point),
            // It was said that it is not there; and then it is not.
            _ => {}
        }
        assert!(wait_slowly(|| daemon.ask(&["ps", "--json"]) == "[]"), "{point}: {}", daemon.ask(&["ps"]));
    });
}
