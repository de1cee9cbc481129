//! The caller's own processes in a group that was delegated. The kernel allows no processes beside limited children, so they
//! step aside into a leaf, and come back when the last warden there goes.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::fs::{
    AtFlags, Dir, FileType, FlockOperation, Mode, XattrFlags, fgetxattr, flock, fremovexattr, fsetxattr,
    mkdirat, statat,
};
use rustix::io::Errno;

use super::group::remove_by_name;
use super::site::ours;
use super::{Controller, read_at};
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

/// Where a group keeps what it was like before the first warden came: whether the leaf was there (a service manager may have made
/// it, `DelegateSubgroup=`), and what was switched on. With the group, so that the last one to go knows it, whoever came first and
/// however that one ended.
const BEFORE: &str = "user.blastbox.before";
/// More than the words of one.
const MOST: usize = 64;

/// The first word of such a note.
const MADE: &str = "made";
const FOUND: &str = "found";

/// Notes what the group is like, unless somebody has. Before anything is changed: of two that come at once, neither takes for
/// found what the other made. Where no note can be kept, what is changed stays.
fn remember(group: &OwnedFd) {
    let leaf = match statat(group, LEAF, AtFlags::empty()) {
        Ok(_) => FOUND,
        Err(Errno::NOENT) => MADE,
        Err(_) => return,
    };
    let mut words = vec![leaf];
    // What cannot be read is not noted as nothing: that would be switched off when the last one goes.
    let Ok(on) = read_at(group, "cgroup.subtree_control") else { return };
    let on = ours(&on);
    words.extend(on.into_iter().map(Controller::as_str));
    fsetxattr(group, BEFORE, words.join(" ").as_bytes(), XattrFlags::CREATE).ok();
}

/// Moves every process of a group into the leaf.
pub(super) fn step_aside(group: &OwnedFd) -> io::Result<()> {
    remember(group);
    match mkdirat(group, LEAF, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    move_all(group, "cgroup.procs", &format!("{LEAF}/cgroup.procs"))
}

/// Has the group be what it was: switches off what was switched on, moves them back and takes the leaf away where it was made.
/// Not while somebody else still makes groups here: another warden, which does this when it goes, or the caller itself, whose groups
/// may be limited by what would be switched off.
pub(super) fn step_back(group: &OwnedFd) {
    if flock(group, FlockOperation::NonBlockingLockExclusive).is_err() || children(group) != [LEAF] {
        return;
    }
    let mut note = [0_u8; MOST];
    let length = fgetxattr(group, BEFORE, &mut note).unwrap_or(0);
    let note = note.get(..length).and_then(|note| std::str::from_utf8(note).ok()).unwrap_or_default();
    let Some(leaf) = note.split(' ').next().filter(|word| [MADE, FOUND].contains(word)) else { return };
    let before = ours(note);
    for controller in ours(&read_at(group, "cgroup.subtree_control").unwrap_or_default()) {
        if !before.contains(&controller) {
            write_at(group, "cgroup.subtree_control", format!("-{}", controller.as_str()).as_bytes()).ok();
        }
    }
    let is_back = leaf == FOUND
        || move_all(group, &format!("{LEAF}/cgroup.procs"), "cgroup.procs").is_ok()
            && remove_by_name(group, LEAF).is_ok();
    // What could not be done now is done by the next warden.
    if is_back {
        fremovexattr(group, BEFORE).ok();
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
