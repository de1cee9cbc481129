//! Root of a box: what `sudo` gives there, and that it gives nothing beyond.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use blastbox_tests::daemon::Daemon;
use blastbox_tests::{Boxed, Caller, both_ways, fill_with};

both_ways!(
    a_command_runs_as_root_of_the_box_and_ends_as_it_did,
    root_changes_the_image_in_memory_alone,
    directories_of_an_image_have_any_name,
    root_of_a_box_has_no_power_over_anything_else,
    without_the_switch_there_is_no_root,
    a_sudo_that_is_killed_takes_its_command_along,
    the_host_view_stays_read_only,
    no_two_boxes_with_a_root_have_the_same_ids,
);

const PASSWD: &str =
    "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\nother:x:33:33::/:/bin/sh\n";

/// A small system of one program with many names. `None`: the test is skipped.
fn system(caller: &Caller) -> Option<PathBuf> {
    let busybox = ["/usr/bin/busybox", "/bin/busybox"].map(Path::new).into_iter().find(|path| path.exists());
    let Some(busybox) = busybox else {
        caller.skip("no busybox (apt-get install busybox-static)");
        return None;
    };
    let image = caller.directory("image");
    let files =
        [("bin/", ""), ("usr/", ""), ("usr/local/", ""), ("usr/local/bin/", ""), ("etc/", ""), ("root/", "")];
    fill_with(caller, &image, &files);
    fill_with(
        caller,
        &image,
        &[("etc/passwd", PASSWD), ("etc/group", "root:x:0:\nuser:x:1000:\n"), ("usr/kept", "x")],
    );
    fs::copy(busybox, image.join("bin/busybox")).unwrap();
    for name in [
        "sh", "id", "cat", "touch", "rm", "ls", "grep", "chown", "chmod", "kill", "mount", "mknod", "sleep",
        "stat", "env", "chroot", "hostname", "pgrep", "mkdir", "echo", "pwd", "cp", "test", "unshare",
        "true", "renice", "tail",
    ] {
        symlink("busybox", image.join("bin").join(name)).unwrap();
    }
    Some(image)
}

/// Runs a script in a box with a root. `None`: this caller cannot have one, and was told so by name.
fn run(caller: &Caller, script: &str) -> Option<Boxed> {
    let image = system(caller)?;
    let image = image.to_str().unwrap();
    if !caller.is_root() {
        let boxed = caller.run(&["--sudo", "--image", image], &["true"]);
        let why = boxed.receipt.reason.as_ref().map(|reason| format!("{reason:?}")).unwrap_or_default();
        assert_eq!(boxed.outcome(), "refused", "{why}");
        assert!(why.contains("root_unavailable") && why.contains("no second one to be root"), "{why}");
        return None;
    }
    let boxed = caller.run(&["--sudo", "--image", image], &["sh", "-c", script]);
    assert_eq!(boxed.outcome(), "exited", "{:?}\n{}", boxed.receipt.reason, boxed.stderr);
    Some(boxed)
}

#[track_caller]
fn says(boxed: &Boxed, lines: &[&str]) {
    assert_eq!(boxed.stdout.lines().collect::<Vec<_>>(), lines, "{}", boxed.stderr);
}

fn a_command_runs_as_root_of_the_box_and_ends_as_it_did(caller: &Caller) {
    let script = "id -u; sudo id -u; sudo -u other id -u; sudo -n -E -- sh -c 'exit 7'; echo $?
        sudo sh -c 'kill -9 $$'; echo $?; sudo nothing-there 2>/dev/null; echo $?; sudo -u nobody-there id 2>/dev/null; echo $?
        echo text | sudo cat; A=1 sudo env | grep -c ^A=; A=1 sudo -E env | grep -c ^A=; sudo B=2 env | grep ^B=
        cd /tmp; sudo pwd; sudo sh -c 'echo $HOME $USER $SUDO_USER'; sudo grep -E '^(NoNewPrivs|Seccomp|CapEff|CapBnd):' /proc/self/status
        sudo sh -c 'sudo -u user id -u'";
    let Some(boxed) = run(caller, script) else { return };
    says(
        &boxed,
        &[
            "1000",
            "0",
            "33",
            "7",
            "137",
            "127",
            "1",
            "text",
            "0",
            "1",
            "B=2",
            "/tmp",
            "/root root user",
            "CapEff:\t00000000000000fb",
            "CapBnd:\t00000000000000fb",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
            "1000",
        ],
    );
}

fn root_changes_the_image_in_memory_alone(caller: &Caller) {
    let script = "touch /usr/new 2>/dev/null || echo no; sudo touch /usr/new && stat -c '%u %n' /usr/new
        sudo rm /usr/kept; ls /usr; sudo sh -c 'echo mine > /etc/mine; chown 33:33 /etc/mine; chmod 600 /etc/mine'
        cat /etc/mine 2>/dev/null || echo private; sudo -u other cat /etc/mine
        sudo sh -c 'echo bob:x:1234:1234::/home/bob:/bin/sh >> /etc/passwd; mkdir /home/bob; chown 1234 /home/bob'
        sudo -u bob sh -c 'id -un; touch ~/x && ls ~'; sudo touch /run/pid && ls /run";
    let Some(boxed) = run(caller, script) else { return };
    says(&boxed, &["no", "0 /usr/new", "local", "new", "private", "mine", "bob", "x", "pid"]);
    let image = caller.place().join("image");
    assert!(image.join("usr/kept").exists() && !image.join("usr/new").exists(), "the image stays as it is");
    assert!(!image.join("etc/mine").exists());
    assert_eq!(fs::read_to_string(image.join("etc/passwd")).unwrap(), PASSWD);
}

/// `:` stands between layers of an overlay, and the changes of `/space` must not lie where those of `/workspace` do.
fn directories_of_an_image_have_any_name(caller: &Caller) {
    let Some(image) = system(caller) else { return };
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root");
    }
    fill_with(
        caller,
        &image,
        &[
            ("x:run/", ""),
            ("x:run/mine", "1"),
            ("space/", ""),
            ("space/mine", "2"),
            ("a,b\\c/", ""),
            ("a,b\\c/mine", "3"),
        ],
    );
    let script = "cat /x:run/mine /space/mine '/a,b\\c/mine'; for at in /x:run /space '/a,b\\c'; do sudo sh -c \"echo -n new > '$at/new'\" && cat \"$at/new\"; ls \"$at\"; done; echo w > /workspace/w && cat /workspace/w";
    let boxed = caller.run(&["--sudo", "--image", image.to_str().unwrap()], &["sh", "-c", script]);
    assert_eq!(boxed.stdout, "123newmine\nnew\nnewmine\nnew\nnewmine\nnew\nw\n", "{}", boxed.stderr);
}

fn root_of_a_box_has_no_power_over_anything_else(caller: &Caller) {
    // Each line says `no` where the attempt fails, as each must.
    let attempts = [
        "mount -t tmpfs x /root",
        "mknod /tmp/d c 1 1",
        "chroot /tmp /bin/true",
        "hostname other",
        "unshare -m true",
        "cat /proc/1/environ",
        "ls /proc/1/fd",
        "sh -c 'exec 3</proc/1/mem'",
        "sh -c 'echo -1000 > /proc/1/oom_score_adj'",
        "sh -c 'echo 1 > /proc/sys/kernel/sysrq'",
        "sh -c 'echo x > /.blastbox/sudo'",
        "sh -c 'echo x > /dev/kmsg'",
    ];
    let tries: String = attempts
        .iter()
        .map(|attempt| format!("sudo {attempt} >/dev/null 2>&1 && echo '{}'\n", attempt.replace('\'', "")))
        .collect();
    // Signals to the first process are nobody's in the box to send, and a set-id bit means nothing.
    let script = format!(
        "{tries}sudo kill -9 1; sudo kill -STOP 1; sudo kill -TERM 1
        sudo cp /bin/busybox /usr/id; sudo chmod 6755 /usr/id; /usr/id -u
        grep -E '^Cap(Prm|Eff|Inh|Amb):' /proc/self/status | grep -vc 0000000000000000
        sudo sh -c 'cd /; sudo -u user id -u'; sudo -u '#70000' id -u 2>/dev/null; echo $?"
    );
    let Some(boxed) = run(caller, &script) else { return };
    says(&boxed, &["1000", "0", "1000", "126"]);
}

fn without_the_switch_there_is_no_root(caller: &Caller) {
    let Some(image) = system(caller) else { return };
    let boxed = caller.run(
        &["--image", image.to_str().unwrap()],
        &["sh", "-c", "sudo id; ls -a / | grep -c blastbox; touch /usr/x"],
    );
    assert_eq!(boxed.stdout, "0\n", "{}", boxed.stderr);
    assert!(
        boxed.stderr.contains("sudo: not found") && boxed.stderr.contains("Read-only"),
        "{}",
        boxed.stderr
    );
    // At the level that trusts nobody there is none to be had.
    let ended = caller.blastbox(["run", "--threat", "critical", "--sudo", "--", "true"]).end();
    assert_eq!(ended.code, 125);
    assert!(ended.err.contains("kernel.root") && ended.err.contains("critical"), "{}", ended.err);
}

fn a_sudo_that_is_killed_takes_its_command_along(caller: &Caller) {
    let script = "sudo sh -c 'echo up > /tmp/up; exec sleep 4321' & asker=$!
        until test -e /tmp/up; do sleep 0.01; done; kill -9 $asker
        while pgrep -f 'sleep 4321' >/dev/null; do sleep 0.01; done; echo gone
        sudo sh -c 'trap \"exit 3\" TERM; echo up > /tmp/two; while :; do sleep 0.01; done' & asker=$!
        until test -e /tmp/two; do sleep 0.01; done; kill -TERM $asker; wait $asker; echo $?";
    let Some(boxed) = run(caller, script) else { return };
    says(&boxed, &["gone", "3"]);
}

fn the_host_view_stays_read_only(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root");
    }
    let boxed = caller.run(
        &["--sudo"],
        &["sh", "-c", "sudo id -u; sudo touch /usr/x; sudo cat /etc/shadow; bash -lc 'sudo id -u'"],
    );
    assert_eq!(boxed.stdout, "0\n0\n", "{}", boxed.stderr);
    assert!(
        boxed.stderr.contains("Read-only file system") && boxed.stderr.contains("/etc/shadow"),
        "{}",
        boxed.stderr
    );
}

/// The block of each is held by a name, which only counts where every warden looks for it: in the network of the host.
fn no_two_boxes_with_a_root_have_the_same_ids(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root");
    }
    let mut daemon = Daemon::without_stock(caller);
    for _ in 0..3 {
        daemon.ask(&["create"]);
        daemon.ask(&["create", "--sudo"]);
    }
    let warden = daemon.warden().unwrap();
    let held: Vec<String> = fs::read_dir(format!("/proc/{warden}/fd"))
        .unwrap()
        .filter_map(|fd| fs::read_link(fd.unwrap().path()).ok())
        .filter_map(|to| Some(to.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = fs::read_to_string("/proc/net/unix").unwrap();
    let names = table.lines().filter(|line| line.contains("@blastbox/ids/"));
    let ours = names.filter(|line| {
        line.split_whitespace().nth(6).is_some_and(|inode| held.iter().any(|one| one == inode))
    });
    let ours: Vec<&str> = ours.collect();
    // Its own, and one for each box with a root.
    assert_eq!(ours.len(), 4, "{ours:?}");
    daemon.stop();
}
