//! Boxes that are paused to disk, for real: nothing of them is left but a file, and everything that ran goes on from it, also with the
//! next daemon; what is not what was written is refused by name, and a box that cannot be written goes on.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::path::{Path, PathBuf};

use blastbox_tests::daemon::signal;
use blastbox_tests::machines::{ONE_AT_A_TIME, PATIENCE, Workshop};
use blastbox_tests::{Caller, Served, both_ways, text, wait_until};
use rustix::process::Signal;

both_ways!(
    a_box_goes_on_from_disk_also_with_the_next_daemon_and_only_from_what_was_written,
    a_box_on_disk_holds_no_room_and_one_that_cannot_be_written_goes_on,
);

/// Keeps a number in its memory, and says it again and again.
const COUNT: &str = "n=0; while :; do n=$((n + 1)); echo $n > /tmp/new; cat /tmp/new > /tmp/count; echo said $n; sleep 1; done";

#[track_caller]
fn fine<'w>(served: &Served<'_>, words: impl IntoIterator<Item = &'w str>) -> String {
    let ended = served.blastbox(words).start().end_within(PATIENCE);
    assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
    ended.text().trim_end().to_owned()
}

/// A verb that must be refused, with this in its words.
#[track_caller]
fn refused<'w>(served: &Served<'_>, words: impl IntoIterator<Item = &'w str>, why: &str) {
    let ended = served.blastbox(words).start().end_within(PATIENCE);
    assert!(ended.code == 125 && ended.err.contains(why), "{why}: {} {}", ended.code, ended.err);
}

fn create(served: &Served<'_>) -> String {
    fine(served, ["create", "--tier", "microvm", "--accept", "emulated-cpu", "--image", "tools"])
}

fn count(served: &Served<'_>, id: &str) -> Option<u64> {
    served.sh(id, "cat /tmp/count").trim().parse().ok()
}

/// The number of its command, and how far it has counted.
fn start_counting(served: &Served<'_>, id: &str) -> (String, u64) {
    served.sh(id, "echo 0 > /tmp/count");
    let exec = fine(served, ["exec", "--detach", id, "--", "sh", "-c", COUNT]);
    let mut far = 0;
    assert!(wait_until(|| {
        far = count(served, id).unwrap_or(0);
        far > 1
    }));
    (exec, far)
}

#[track_caller]
fn counts_on(served: &Served<'_>, id: &str, from: u64) {
    assert!(wait_until(|| count(served, id).is_some_and(|now| now > from)), "{:?}", count(served, id));
}

fn file_of(caller: &Caller, id: &str) -> PathBuf {
    let name = format!("{}.snapshot", id.replace("bx_", "sn_"));
    caller.place().join("state/snapshots").join(name)
}

fn ledger(state: &Path) -> String {
    let files = fs::read_dir(state.join("ledger")).expect("a ledger");
    files.filter_map(|file| fs::read_to_string(file.expect("an entry").path()).ok()).collect()
}

fn a_box_goes_on_from_disk_also_with_the_next_daemon_and_only_from_what_was_written(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.first_files();
    let options = ["--store", workshop.store.as_str()];
    let served = Served::start(caller, &options);
    let id = create(&served);
    let (exec, before) = start_counting(&served, &id);
    let other = fine(&served, ["snapshot", &id]);
    let another = fs::read(file_of(caller, &other)).expect("read it");
    assert_eq!(fine(&served, ["pause", "--to-disk", &id]), format!("{id} paused, on disk"));
    // It is a box, and neither runs nor is it a snapshot.
    assert!(served.ask(["ps"]).contains("paused, on disk"));
    refused(&served, ["exec", &id, "--", "true"], "paused");
    refused(&served, ["pause", &id], "paused");
    let name = id.replace("bx_", "sn_");
    assert!(!served.ask(["snapshot", "ls"]).contains(&name));
    refused(&served, ["create", "--snapshot", &name], "no such snapshot");
    refused(&served, ["snapshot", "rm", &name], "no such snapshot");
    signal(served.id(), Signal::KILL);
    drop(served);

    let served = Served::start(caller, &options);
    assert!(served.ask(["inspect", &id]).contains("paused, on disk"));
    let file = file_of(caller, &id);
    let whole = fs::read(&file).expect("read it");
    let altered = |at: usize| {
        let mut bytes = whole.clone();
        bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1);
        bytes
    };
    let middle = whole.len() / 2;
    let half = whole.get(..middle).expect("half of it").to_vec();
    for (bytes, why) in [
        (half, "cut short"),
        (altered(middle), "was altered"),
        (altered(30), "was altered"),
        (another, "another machine"),
    ] {
        fs::write(&file, bytes).expect("change it");
        refused(&served, ["resume", &id], why);
        assert!(served.ask(["ps"]).contains("paused, on disk"), "{why}");
    }
    fs::write(&file, &whole).expect("put it back");
    assert!(fine(&served, ["resume", &id]).starts_with(&id));
    assert!(!file.exists());
    counts_on(&served, &id, before);
    assert_eq!(served.sh(&id, "uname -n"), id.replace('_', "-"));
    // The command is the one that it was, and its number nobody else's.
    assert!(wait_until(|| served.ask(["logs", &id, &exec]).contains("said")));
    let next: u32 = fine(&served, ["exec", "--detach", &id, "--", "true"]).parse().expect("a number");
    assert!(next > exec.parse().expect("a number"));
    // Once more, from the machine as it is now.
    served.sh(&id, "echo later > /tmp/later");
    fine(&served, ["pause", "--to-disk", &id]);
    fine(&served, ["resume", &id]);
    assert_eq!(served.sh(&id, "cat /tmp/later"), "later");
    fine(&served, ["pause", "--to-disk", &id]);
    // What lies on disk can be killed there.
    served.ask(["kill", &id]);
    assert!(!file.exists());
    refused(&served, ["resume", &id], "gone");
    let told = ledger(&caller.place().join("state"));
    assert_eq!(told.matches("\"box_on_disk\"").count(), 3, "each time");
    assert_eq!(served.stop().code, 0);
}

fn a_box_on_disk_holds_no_room_and_one_that_cannot_be_written_goes_on(caller: &Caller) {
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::new(caller) else { return };
    workshop.first_files();
    let config = caller.file("daemon.toml", "[default_quota]\nboxes = 1\n");
    let served = Served::start(caller, &["--store", &workshop.store, "--config", text(&config)]);
    let id = create(&served);
    let (_, before) = start_counting(&served, &id);
    // What is in the way is found when all of it was written: the box goes on.
    let file = file_of(caller, &id);
    fs::create_dir_all(file.join("in the way")).expect("a directory in the way");
    caller.own(file.parent().expect("a place for snapshots"));
    refused(&served, ["pause", "--to-disk", &id], "could not be written");
    counts_on(&served, &id, before);
    fs::remove_dir_all(&file).expect("make way");
    // What it had is free for others.
    fine(&served, ["pause", "--to-disk", &id]);
    let second = create(&served);
    refused(&served, ["resume", &id], "quota of boxes");
    served.ask(["kill", &second]);
    fine(&served, ["resume", &id]);
    counts_on(&served, &id, before);
    // What is no machine says so, and goes on.
    served.ask(["kill", &id]);
    let jail = fine(&served, ["create", "--tier", "jail"]);
    refused(&served, ["pause", "--to-disk", &jail], "--tier microvm");
    assert_eq!(served.sh(&jail, "echo here"), "here");
    assert_eq!(served.stop().code, 0);
}
