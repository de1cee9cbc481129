//! A group that a service manager has delegated: the caller's processes step aside while boxes are limited in it, and are back
//! when the run returns.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::fs;
use std::path::{Path, PathBuf};

use blastbox_tests::Caller;
use blastbox_wire::receipt::{CgroupFlavour, Receipt};

const WANTED: [&str; 2] = ["memory", "pids"];

/// A delegated group, which goes with the test, and what its parent had to hand down for it and did not before.
struct Delegated {
    group: PathBuf,
    handed_down: Vec<&'static str>,
}

impl Delegated {
    /// `None`: this host has none of the unified interface in which processes could be limited.
    fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("read the host's mounts");
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        let root = Path::new(line.split(' ').nth(4)?);
        let controls = root.join("cgroup.subtree_control");
        let before = fs::read_to_string(&controls).ok()?;
        let lacks = |name: &&str| !before.split_whitespace().any(|one| one == *name);
        let handed_down: Vec<&str> = WANTED.into_iter().filter(lacks).collect();
        // From here on whatever fails takes back what was done.
        let made = Self { group: root.join(format!("blastbox-tests-{}", std::process::id())), handed_down };
        for name in &made.handed_down {
            fs::write(&controls, format!("+{name}")).ok()?;
        }
        fs::create_dir(&made.group).ok()?;
        let name = "trusted.delegate";
        rustix::fs::setxattr(&made.group, name, b"1", rustix::fs::XattrFlags::empty()).ok()?;
        Some(made)
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        let gone = fs::remove_dir(&self.group);
        let controls = self.group.with_file_name("cgroup.subtree_control");
        for name in &self.handed_down {
            fs::write(&controls, format!("-{name}")).ok();
        }
        if std::thread::panicking() {
            // What went wrong is told already.
            return;
        }
        assert!(!self.group.exists(), "{} is left: {gone:?}", self.group.display());
        let after = fs::read_to_string(&controls).expect("read what the root hands down");
        let left = |name: &&str| after.split_whitespace().any(|one| one == *name);
        assert_eq!(self.handed_down.iter().copied().filter(left).count(), 0, "still handed down: {after}");
    }
}

#[test]
fn a_delegated_group_is_as_it_was_when_the_run_returns() {
    let test = "a_delegated_group_is_as_it_was_when_the_run_returns";
    let Some(caller) = Caller::root(test) else { return };
    let Some(group) = Delegated::make() else {
        return caller.skip("memory and processes are not limited by the unified interface here");
    };
    // A shell that is in the group has two boxes at once, both limited within the group, and tells what it finds afterwards.
    let script = "echo $$ >\"$1/cgroup.procs\" || exit 99
        \"$0\" run -q -- sleep 60 & first=$!
        tries=0; until ls -d \"$1\"/blastbox-warden-*/ >/dev/null 2>&1 || [ $((tries += 1)) = 200 ]; do sleep 0.05; done
        \"$0\" run --receipt r.json --pids 20 -- sleep 60 & second=$!
        tries=0; until [ \"$(ls -d \"$1\"/blastbox-warden-*/ 2>/dev/null | wc -l)\" = 2 ] || [ $((tries += 1)) = 200 ]; do sleep 0.05; done
        [ $tries != 200 ] || { find \"$1\" -type d; exit 97; }
        kill $first $second; wait $first; [ $? = 143 ] || exit 96; wait $second; [ $? = 143 ] || exit 98
        echo \"pid $$\"; cat \"$1/cgroup.procs\" \"$1/cgroup.subtree_control\"; find \"$1\" -mindepth 1 -type d";
    let (blastbox, at) = (caller.blastbox_path().display().to_string(), group.group.display().to_string());
    let ended = caller.program(Path::new("/bin/sh"), ["-c", script, &blastbox, &at]).end();
    assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
    let said = ended.text();
    let (shell, rest) = said.split_once('\n').expect("it says who it is");
    let shell = shell.trim_start_matches("pid ");
    assert!(rest.lines().any(|line| line == shell), "the shell is not back: {said}");
    assert!(
        rest.lines().all(|line| line.parse::<u32>().is_ok() || line.is_empty()),
        "something is left: {said}"
    );
    let receipt = fs::read(caller.place().join("r.json")).expect("read the receipt");
    let receipt: Receipt = serde_json::from_slice(&receipt).expect("a receipt");
    assert_ne!(receipt.host.cgroups, CgroupFlavour::None, "{:?}", receipt.host);
}
