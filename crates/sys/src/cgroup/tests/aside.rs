//! Processes that step aside in a real group, where this host has the unified interface.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::super::aside::{self, LEAF};
use super::super::site::Mounted;

/// A group of the unified interface with a process in it. Both go with the test, however it ends.
struct RealGroup {
    at: PathBuf,
    child: Child,
}

impl RealGroup {
    /// `None`, and said so, where there can be none.
    #[expect(clippy::disallowed_methods, reason = "a process that is moved from group to group")]
    fn make(name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mount = mounts.lines().filter_map(Mounted::parse).find(|mount| mount.kind == "cgroup2");
        let name = format!("blastbox-cgroup-test-{name}-{}", std::process::id());
        let at = mount.map(|mount| Path::new(mount.at).join(name));
        let Some(at) = at.filter(|at| fs::create_dir(at).is_ok()) else {
            blastbox_skips::skip_this("no group of the unified interface can be made here");
            return None;
        };
        let child = std::process::Command::new("/bin/sleep").arg("60").spawn();
        let Ok(child) = child else {
            fs::remove_dir(&at).ok();
            panic!("no process to move");
        };
        let group = Self { at, child };
        fs::write(group.at.join("cgroup.procs"), group.pid()).unwrap();
        Some(group)
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.at.join(file)).unwrap_or_default().trim().to_owned()
    }

    fn aside(&self) -> String {
        self.read(&format!("{LEAF}/cgroup.procs"))
    }

    /// As a warden holds it.
    fn held(&self) -> OwnedFd {
        let open = OwnedFd::from(fs::File::open(&self.at).unwrap());
        // Somebody who sweeps may be looking at it at this moment.
        flock(&open, FlockOperation::LockShared).unwrap();
        open
    }
}

impl Drop for RealGroup {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        for _ in 0..200 {
            for beneath in [LEAF, "other"] {
                fs::remove_dir(self.at.join(beneath)).ok();
            }
            if fs::remove_dir(&self.at).is_ok() {
                return;
            }
            // The last process is dead but not yet forgotten by the kernel.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn processes_step_aside_and_come_back_when_the_last_warden_goes() {
    let Some(group) = RealGroup::make("aside") else { return };
    let (first, second) = (group.held(), group.held());
    aside::step_aside(&first).unwrap();
    aside::step_aside(&second).unwrap();
    assert_eq!((group.aside(), group.read("cgroup.procs")), (group.pid(), String::new()));
    aside::step_back(&first);
    assert_eq!(group.aside(), group.pid(), "somebody still uses it");
    drop(first);
    // Groups of somebody else keep them there as well.
    fs::create_dir(group.at.join("other")).unwrap();
    aside::step_back(&second);
    assert_eq!(group.aside(), group.pid(), "somebody else has groups there");
    fs::remove_dir(group.at.join("other")).unwrap();
    aside::step_back(&second);
    assert_eq!(group.read("cgroup.procs"), group.pid());
    assert!(!group.at.join(LEAF).exists());
    assert!(rustix::fs::getxattr(&group.at, "user.blastbox.before", &mut [0_u8; 64][..]).is_err());
}

#[test]
fn a_leaf_that_no_warden_made_stays_with_those_in_it() {
    let Some(group) = RealGroup::make("found") else { return };
    fs::create_dir(group.at.join(LEAF)).unwrap();
    fs::write(group.at.join(LEAF).join("cgroup.procs"), group.pid()).unwrap();
    let warden = group.held();
    aside::step_aside(&warden).unwrap();
    aside::step_back(&warden);
    assert_eq!((group.aside(), group.read("cgroup.procs")), (group.pid(), String::new()));
    drop(warden);
    // The same for one that comes after a warden that was killed.
    let killed = group.held();
    aside::step_aside(&killed).unwrap();
    drop(killed);
    let last = group.held();
    aside::step_aside(&last).unwrap();
    aside::step_back(&last);
    assert_eq!(group.aside(), group.pid());
}

/// Where none can be switched on in this group, only that none is switched off can be seen.
#[test]
fn what_was_switched_on_before_stays_on() {
    let Some(group) = RealGroup::make("switched") else { return };
    let offered = group.read("cgroup.controllers");
    let Some(first) = offered.split_whitespace().find(|name| ["memory", "pids", "cpu"].contains(name)) else {
        return blastbox_skips::skip_this("the unified interface has no controller of ours here");
    };
    let others: Vec<&str> = ["memory", "pids", "cpu"].into_iter().filter(|name| *name != first).collect();
    let switch = |words: &str| fs::write(group.at.join("cgroup.subtree_control"), words);
    fs::create_dir(group.at.join(LEAF)).unwrap();
    fs::write(group.at.join(LEAF).join("cgroup.procs"), group.pid()).unwrap();
    switch(&format!("+{first}")).unwrap();
    let warden = group.held();
    aside::step_aside(&warden).unwrap();
    for other in others {
        // What this host does not offer here cannot be.
        switch(&format!("+{other}")).ok();
    }
    aside::step_back(&warden);
    assert_eq!(group.read("cgroup.subtree_control"), first);
}
