//! Releasing what killed wardens left behind, by name alone.

use std::os::fd::OwnedFd;

use rustix::fs::{Dir, FlockOperation, Mode, OFlags, flock, openat};

use super::group::remove_by_name;
use super::{NEST, Site, read_at};
use crate::namespaces::write_at;

/// How the name of a box begins.
const BOX: &str = "bx_";

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Site {
    /// Ends and removes every group whose warden is gone. Returns how many there were in the fullest hierarchy.
    #[must_use]
    pub fn sweep(&self) -> u32 {
        // The freezer first: a stopped process dies only when it is let go.
        let roots = self.freezer.iter().chain(self.roots.iter().map(|root| &root.dir));
        roots.map(sweep_hierarchy).max().unwrap_or(0)
    }
}

pub(super) fn sweep_hierarchy(root: &OwnedFd) -> u32 {
    let mut boxes = 0;
    for name in names(root, NEST) {
        let Ok(nest) = openat(root, name.as_str(), DIRECTORY, Mode::empty()) else { continue };
        // Locked: its warden lives.
        if flock(&nest, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        for group in [BOX, NEST].into_iter().flat_map(|begin| names(&nest, begin)) {
            release(&nest, &group);
            boxes += 1;
        }
        boxes += u32::from(name.strip_prefix(NEST).is_some_and(|box_id| box_id.starts_with(BOX)));
        release(root, &name);
    }
    boxes
}

/// Boxes die with their warden, so this is for one that is just dying, was stopped, or that the kernel failed to end.
fn release(nest: &OwnedFd, name: &str) {
    end_processes(nest, name);
    // What cannot be removed now is found by the next sweep.
    remove_by_name(nest, name).ok();
}

/// Ends everything in a group. Whoever cannot be ended keeps it from being removed.
pub(super) fn end_processes(nest: &OwnedFd, name: &str) {
    let Ok(group) = openat(nest, name, DIRECTORY, Mode::empty()) else { return };
    if write_at(&group, "cgroup.kill", b"1").is_err() {
        for pid in read_at(&group, "cgroup.procs").unwrap_or_default().lines() {
            if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
            }
        }
    }
    write_at(&group, "freezer.state", b"THAWED").ok();
}

fn names(dir: &OwnedFd, prefix: &str) -> Vec<String> {
    let Ok(entries) = Dir::read_from(dir) else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().ok().map(ToOwned::to_owned))
        .filter(|name| name.starts_with(prefix))
        .collect()
}
