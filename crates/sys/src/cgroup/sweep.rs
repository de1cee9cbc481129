//! Releasing what killed wardens left behind, by name alone.

use rustix::fs::{Dir, FlockOperation, Mode, OFlags, flock, openat};

use super::group::remove_by_name;
use super::{PARENT, Site, read_at};
use crate::namespaces::write_at;

impl Site {
    /// Ends and removes every group whose warden is gone. Returns how many there were in the fullest hierarchy.
    #[must_use]
    pub fn sweep(&self) -> u32 {
        // The freezer first: a stopped process dies only when it is let go.
        let freezer = self.freezer.as_ref().map_or(0, sweep_one);
        self.roots.iter().map(|(_, root)| sweep_one(root)).max().unwrap_or(0).max(freezer)
    }
}

fn sweep_one(root: &std::os::fd::OwnedFd) -> u32 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(parent) = openat(root, PARENT, flags, Mode::empty()) else { return 0 };
    let Ok(entries) = Dir::read_from(&parent) else { return 0 };
    let mut removed = 0;
    for entry in entries.flatten() {
        let Ok(name) = entry.file_name().to_str() else { continue };
        if !name.starts_with("bx_") {
            continue;
        }
        let Ok(group) = openat(&parent, name, flags, Mode::empty()) else { continue };
        // Locked: its warden lives.
        if flock(&group, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        // Boxes die with their warden, so this is for one that is just dying, or that the kernel failed to end.
        if write_at(&group, "cgroup.kill", b"1").is_err() {
            for pid in read_at(&group, "cgroup.procs").unwrap_or_default().lines() {
                if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
                    rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
                }
            }
        }
        write_at(&group, "freezer.state", b"THAWED").ok();
        if remove_by_name(root, name).is_ok() {
            removed += 1;
        }
    }
    removed
}
