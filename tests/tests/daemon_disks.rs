//! What a daemon does when the disk of its state directory is full or read-only: outcomes of the table in `docs/operate.md`.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::io::Write as _;
use std::path::Path;

use blastbox_tests::census::Census;
use blastbox_tests::daemon::Daemon;
use blastbox_tests::{Caller, Held, both_ways, wait_until};

both_ways!(
    a_full_disk_begins_nothing_ends_nothing_and_is_forgotten_when_there_is_room,
    a_read_only_state_directory_is_refused_at_the_start,
    a_disk_that_becomes_read_only_begins_nothing_and_ends_nothing,
);

/// A daemon whose state directory is a file system of its own, which nobody else sees. Only root can make one.
fn on_small_disk<'a>(caller: &'a Caller, options: &str, before: &str) -> Option<(Daemon<'a>, Held)> {
    on_disk(caller, &format!("mount -t tmpfs -o {options} none"), before)
}

fn on_disk<'a>(caller: &'a Caller, mount: &str, before: &str) -> Option<(Daemon<'a>, Held)> {
    if !caller.is_root() {
        caller.skip("only root can mount a small disk for it");
        return None;
    }
    let state = caller.directory("disk");
    let daemon = Daemon::shipped(caller).in_state(state.join("state"));
    let script = format!(
        "{mount} {disk} && mkdir -m 700 {disk}/state && {before} \
         exec {program} serve --quiet --state-dir {disk}/state --socket {socket}",
        disk = state.display(),
        program = daemon.program().display(),
        socket = daemon.socket().display(),
    );
    let words = ["--mount", "--propagation", "private", "/bin/sh", "-c", &script];
    let held = caller.program(Path::new("/usr/bin/unshare"), words).start();
    Some((daemon, held))
}

fn a_full_disk_begins_nothing_ends_nothing_and_is_forgotten_when_there_is_room(caller: &Caller) {
    let mut census = Census::begin(caller);
    let Some((mut daemon, held)) = on_small_disk(caller, "size=2m", "") else { return };
    daemon.adopt(held);
    assert!(daemon.await_answer());
    let made = daemon.ask(&["create", "--memory", "64MiB"]);
    let script = "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.01; done";
    daemon.ask(&["exec", "--detach", &made, "--", "/bin/sh", "-c", script]);
    let fill =
        format!("/proc/{}/root{}/fill", daemon.id(), daemon.state().parent().expect("a disk").display());
    let mut file = std::fs::File::create(&fill).expect("reach the small disk");
    // To the last byte.
    for size in [65_536, 512, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
    census.accept_files();
    let lines = || daemon.client(&["logs", &made]).end().text().lines().count();
    let refused = (0..200).find_map(|_| {
        let ended = daemon.client(&["create", "--memory", "64MiB"]).end();
        if ended.code == 0 {
            daemon.client(&["kill", ended.text().trim()]).end();
            return None;
        }
        Some(ended.err)
    });
    let refused = refused.expect("a full disk takes no end of boxes");
    assert!(refused.contains("recorded") || refused.contains("written down"), "{refused}");
    let before = lines();
    assert!(wait_until(|| lines() > before), "the running command does not go on");
    assert!(daemon.ask(&["ps"]).contains(&made), "the box is not there any more");
    std::fs::remove_file(&fill).expect("make room");
    drop(file);
    let again = daemon.ask(&["create", "--memory", "64MiB"]);
    daemon.ask(&["kill", &again]);
    daemon.ask(&["kill", &made]);
    daemon.stop();
    census.expect_nothing("a full disk");
}

fn a_read_only_state_directory_is_refused_at_the_start(caller: &Caller) {
    let census = Census::begin(caller);
    let Some((_, held)) = on_small_disk(
        caller,
        "size=2m",
        "mount -o remount,ro {disk} &&"
            .replace("{disk}", &caller.place().join("disk").display().to_string())
            .as_str(),
    ) else {
        return;
    };
    let ended = held.end();
    assert_eq!(ended.code, 125, "{}", ended.err);
    assert!(ended.err.to_lowercase().contains("read-only"), "{}", ended.err);
    std::fs::remove_dir(caller.place().join("disk")).expect("remove the empty directory");
    census.expect_nothing("a read-only directory");
}

/// What the kernel does to a disk that fails. It refuses to do it for a caller while files are open for writing, but for ext4's own
/// switch to bring that about.
fn a_disk_that_becomes_read_only_begins_nothing_and_ends_nothing(caller: &Caller) {
    let image = caller.place().join("disk.img").display().to_string();
    let probe =
        format!("truncate -s 16M {image} && mkfs.ext4 -q -F {image} && losetup -f && command -v nsenter");
    if caller.is_root() && caller.program(Path::new("/bin/sh"), ["-c", &probe]).end().code != 0 {
        std::fs::remove_file(&image).ok();
        return caller.skip("a disk that fails is made with mkfs.ext4, a loop device and nsenter");
    }
    let mut census = Census::begin(caller);
    let Some((mut daemon, held)) = on_disk(caller, &format!("mount -o loop {image}"), "") else { return };
    daemon.adopt(held);
    assert!(daemon.await_answer());
    let made = daemon.ask(&["create", "--memory", "64MiB"]);
    let script = "i=0; while :; do echo line $i; i=$((i+1)); sleep 0.01; done";
    daemon.ask(&["exec", "--detach", &made, "--", "/bin/sh", "-c", script]);
    let (pid, disk) = (daemon.id().to_string(), caller.place().join("disk").display().to_string());
    let fail = ["--target", &pid, "--mount", "mount", "-o", "remount,abort", &disk];
    let failed = caller.program(Path::new("/usr/bin/nsenter"), fail).end();
    assert_eq!(failed.code, 0, "{}", failed.err);
    census.accept_files();
    let refused = daemon.client(&["create", "--memory", "64MiB"]).end();
    assert_ne!(refused.code, 0, "a box is made that nobody has written down");
    assert!(refused.err.contains("recorded") || refused.err.contains("written down"), "{}", refused.err);
    let refused = daemon.client(&["exec", &made, "--", "/bin/true"]).end();
    assert_ne!(refused.code, 0, "a command runs that nobody has written down");
    let lines = || daemon.client(&["logs", &made]).end().text().lines().count();
    let before = lines();
    assert!(wait_until(|| lines() > before), "the running command does not go on");
    daemon.ask(&["kill", &made]);
    daemon.stop();
    // It goes with the last one who saw it.
    std::fs::remove_file(&image).expect("remove the disk");
    std::fs::remove_dir(&disk).expect("remove the empty directory");
    census.expect_nothing("a disk that became read-only");
}
