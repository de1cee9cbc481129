//! The directory that one warden has in one hierarchy, or is given there: all its groups lie in it, and a lock says that it lives.

use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::site::{Room, Root};
use super::sweep::sweep_hierarchy;
use super::{Controller, Flavour, Site, aside};
use crate::namespaces::write_at;

/// How often a nest is made anew when a sweep takes it away before it is locked, and how long a sweep is given to go on: where many
/// wardens begin at once each of them sweeps.
const TRIES: u32 = 500;
const BETWEEN: Duration = Duration::from_millis(1);

/// Where a warden makes groups in one hierarchy: its own directory, locked for as long as it is open, or the one that this would lie in.
#[derive(Debug)]
pub(super) struct Nest {
    pub(super) flavour: Flavour,
    pub(super) controllers: Vec<Controller>,
    pub(super) dir: OwnedFd,
}

impl Nest {
    /// The group of this name.
    pub(super) fn open(&self, name: &str) -> io::Result<OwnedFd> {
        Ok(openat(&self.dir, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
    }
}

impl Site {
    /// The nests, made when the first group is.
    pub(super) fn nests(&self) -> io::Result<&[Nest]> {
        if let Some(nests) = self.nests.get() {
            return Ok(nests);
        }
        let mut made = Vec::with_capacity(self.roots.len());
        for Root { flavour, controllers, dir, .. } in &self.roots {
            let dir = match self.room {
                Room::One => dir.try_clone()?,
                Room::Many => make_locked(dir, &self.name)?,
            };
            if self.room == Room::Many {
                hand_down(&dir, *flavour, controllers)?;
            }
            made.push(Nest { flavour: *flavour, controllers: controllers.clone(), dir });
        }
        Ok(self.nests.get_or_init(|| made))
    }

    /// The nest in which a controller counts.
    pub(super) fn nest(&self, controller: Controller) -> Option<&Nest> {
        self.nests.get()?.iter().find(|nest| nest.controllers.contains(&controller))
    }

    /// The nest in the freezer, where one was ever needed.
    pub(super) fn freezer_nest(&self) -> Option<&Nest> {
        self.freezer_nest.get()
    }

    /// The nest in the freezer, made when the first box is paused.
    pub(super) fn need_freezer_nest(&self) -> io::Result<&Nest> {
        if let Some(nest) = self.freezer_nest.get() {
            return Ok(nest);
        }
        let Some(root) = &self.freezer else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this host has no freezer controller"));
        };
        let dir = make_locked(root, &self.name)?;
        Ok(self.freezer_nest.get_or_init(|| Nest { flavour: Flavour::V1, controllers: Vec::new(), dir }))
    }

    /// Takes the nests away, and lets the caller's processes come back where they stepped aside.
    pub fn close(&self) {
        let freezer = self.freezer.iter().filter(|_| self.freezer_nest.get().is_some());
        for root in self.roots.iter().map(|root| &root.dir).chain(freezer) {
            // Not empty: a group is left, for the next sweep. Not there: it was never needed.
            unlinkat(root, self.name.as_str(), AtFlags::REMOVEDIR).ok();
        }
        for root in self.roots.iter().filter(|root| root.delegated) {
            // What a killed warden left would keep them aside.
            sweep_hierarchy(&root.dir);
            aside::step_back(&root.dir);
        }
    }
}

/// Makes a directory that is swept when whoever made it is gone.
pub(super) fn make_locked(root: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let mut locked = false;
    for _ in 0..TRIES {
        match mkdirat(root, name, Mode::from_raw_mode(0o755)) {
            // There already: made by ourselves in an earlier try.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A sweep may have taken it in the moment before the lock; then it is made anew.
        if let Ok(dir) = openat(root, name, flags, Mode::empty()) {
            locked = flock(&dir, FlockOperation::NonBlockingLockExclusive).is_err();
            if !locked && statat(&dir, "cgroup.procs", AtFlags::empty()).is_ok() {
                return Ok(dir);
            }
        }
        thread::sleep(BETWEEN);
    }
    Err(if locked {
        io::Error::new(io::ErrorKind::ResourceBusy, "somebody else holds its lock")
    } else {
        io::Error::other("it was taken away again and again")
    })
}

/// On the unified interface, controllers work in a group only when its parent hands them down.
fn hand_down(nest: &OwnedFd, flavour: Flavour, controllers: &[Controller]) -> io::Result<()> {
    if flavour == Flavour::V1 {
        return Ok(());
    }
    let names: Vec<_> = controllers.iter().map(|controller| format!("+{}", controller.as_str())).collect();
    write_at(nest, "cgroup.subtree_control", names.join(" ").as_bytes())
}
