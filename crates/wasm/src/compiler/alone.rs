//! Where whoever looks into a stranger's module lives: namespaces of its own, in which there is no file, no network and nobody else.
//!
//! Its filter, Landlock, ids and limits hold without them; they hold where one of those has a hole. What it may take of memory is its
//! limit on address space, since it is one process and starts no other.

use std::io;
use std::os::fd::AsFd as _;

use blastbox_sys::fork::{Side, SingleThreaded, Unshare, fork, leave};
use blastbox_sys::identity::die_with_parent;
use blastbox_sys::mount::{Attributes, become_root, cover_root, create, keep_to_ourselves};
use blastbox_sys::namespaces::{DenyGroups, IdRow, own_cgroup_view, own_network, own_users, write_maps};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, WaitOptions, getegid, geteuid, getpid, kill_process, waitpid};

/// What the whole file system of such a process may hold: nothing is ever written there.
const ROOM: [(&str, Option<&str>); 3] =
    [("size", Some("4096")), ("nr_inodes", Some("2")), ("mode", Some("0555"))];

/// Goes on as the first process of namespaces of its own. Whoever called it waits for that one, and ends as it does.
///
/// # Errors
/// When this host gives nobody like the caller namespaces of his own: then a box could not be made here either.
pub(crate) fn withdraw() -> io::Result<()> {
    // It goes with whoever started it, and the one within with it.
    die_with_parent()?;
    let proof = SingleThreaded::prove()?;
    // Root makes them itself, unless it is one that may not; everybody else in a user namespace.
    if !geteuid().is_root() || own_network().is_err() {
        become_own_root()?;
        own_network()?;
    }
    own_cgroup_view()?;
    match fork(&proof, Unshare::BOX, None)? {
        Side::Parent(within) => end_like(within),
        Side::Child => {
            keep_to_ourselves()?;
            cover_root(create("tmpfs", &ROOM, Attributes::PLAIN.read_only().no_programs())?.as_fd())?;
            become_root()
        }
    }
}

/// The same user, with power over nothing but what it makes from here on.
fn become_own_root() -> io::Result<()> {
    let row = |id| [IdRow { inside: id, outside: id, count: 1 }];
    let (user, group) = (row(geteuid().as_raw()), row(getegid().as_raw()));
    own_users()?;
    let proc = open("/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    write_maps(proc.as_fd(), "self", &user, &group, DenyGroups::Yes)
}

/// Waits for it, and ends as it did.
fn end_like(within: Pid) -> ! {
    let status = rustix::io::retry_on_intr(|| waitpid(Some(within), WaitOptions::empty()));
    match status.ok().flatten().and_then(|(_, status)| status.exit_status()) {
        Some(code) => leave(code),
        None => {
            kill_process(getpid(), Signal::KILL).ok();
            leave(1)
        }
    }
}
