//! The caller's own processes in a group that was delegated. The kernel allows no processes beside limited children, so they
//! step aside into a leaf, and come back when the last warden there goes.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::fs::{Dir, FileType, FlockOperation, Mode, flock, mkdirat};
use rustix::io::Errno;

use super::group::remove_by_name;
use super::read_at;
use super::site::ours;
use crate::namespaces::write_at;

/// The leaf.
pub(super) const LEAF: &str = "blastbox-caller";
/// How often those are moved that were born where their parent was before it moved.
const ROUNDS: u32 = 50;

/// How often the group is asked for, and how long it is waited in between: whoever takes leave of it holds it for a moment, and
/// anybody else who locks what he can read must not keep us waiting for good.
const ASKED: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(2);

/// Holds a group for as long as it is open: the last one to let go lets the caller's processes come back.
pub(super) fn hold(group: &OwnedFd) -> bool {
    (0..ASKED).any(|_| {
        let held = flock(group, FlockOperation::NonBlockingLockShared).is_ok();
        if !held {
            thread::sleep(BETWEEN);
        }
        held
    })
}

/// Moves every process of a group into the leaf.
pub(super) fn step_aside(group: &OwnedFd) -> io::Result<()> {
    match mkdirat(group, LEAF, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    move_all(group, "cgroup.procs", &format!("{LEAF}/cgroup.procs"))
}

/// Moves them back and takes the leaf away, unless somebody else still makes groups here: another warden, which does this
/// when it goes, or the caller itself, whose groups may be limited by what would be switched off.
pub(super) fn step_back(group: &OwnedFd) {
    if flock(group, FlockOperation::NonBlockingLockExclusive).is_err() || children(group) != [LEAF] {
        return;
    }
    for controller in ours(&read_at(group, "cgroup.subtree_control").unwrap_or_default()) {
        write_at(group, "cgroup.subtree_control", format!("-{}", controller.as_str()).as_bytes()).ok();
    }
    if move_all(group, &format!("{LEAF}/cgroup.procs"), "cgroup.procs").is_ok() {
        // What cannot be removed now is removed by the next warden.
        remove_by_name(group, LEAF).ok();
    }
}

fn move_all(group: &OwnedFd, from: &str, to: &str) -> io::Result<()> {
    for _ in 0..ROUNDS {
        let inside = read_at(group, from)?;
        if inside.is_empty() {
            return Ok(());
        }
        // Somebody of another pid namespace. Writing that number would move ourselves.
        if inside.lines().any(|pid| pid == "0") {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        for pid in inside.lines() {
            // One that has ended meanwhile is no obstacle.
            write_at(group, to, pid.as_bytes()).ok();
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

fn children(group: &OwnedFd) -> Vec<String> {
    let Ok(entries) = Dir::read_from(group) else { return Vec::new() };
    let names = entries.flatten().filter(|entry| entry.file_type() == FileType::Directory);
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name != "." && name != "..").collect()
}
