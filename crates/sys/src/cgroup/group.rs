//! The group of one box.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::{Controller, Flavour, PARENT, Site, read_at};
use crate::namespaces::write_at;

/// What a group is limited to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes.
    pub memory: u64,
    /// Thousandths of a processor.
    pub millicpus: u32,
    /// Processes and threads.
    pub pids: u32,
}

/// What a group has counted.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    /// Most memory at any time, in bytes.
    pub memory_peak: u64,
    /// Processes that were killed because memory ran out.
    pub oom_kills: u64,
    /// Processes that could not be made because of the limit.
    pub pids_refused: u64,
}

/// The group of one box, made and locked.
#[derive(Debug)]
pub struct Group {
    pub(super) name: String,
    flavour: Flavour,
    dirs: Vec<(Vec<Controller>, OwnedFd)>,
    /// Whether it has a group among those that stop processes.
    pub(super) was_paused: Cell<bool>,
}

/// How often a group is made anew when somebody else takes its parent away at the same moment.
const TRIES: u32 = 20;

impl Site {
    /// Makes and locks a group. It has no limits yet.
    pub fn make(&self, name: &str) -> io::Result<Group> {
        let mut group = Group {
            name: name.to_owned(),
            flavour: self.flavour,
            dirs: Vec::new(),
            was_paused: Cell::new(false),
        };
        match self.make_each(&mut group) {
            Ok(()) => Ok(group),
            Err(error) => {
                self.remove(group)?;
                Err(error)
            }
        }
    }

    fn make_each(&self, group: &mut Group) -> io::Result<()> {
        for (controllers, root) in &self.roots {
            let dir = make_locked(root, &group.name, self.flavour, controllers)?;
            group.dirs.push((controllers.clone(), dir));
        }
        Ok(())
    }

    /// Takes a group away. Its processes must have ended.
    pub fn remove(&self, group: Group) -> io::Result<()> {
        let mut outcome = Ok(());
        let freezer = self.freezer.iter().filter(|_| group.was_paused.get());
        for root in self.roots.iter().map(|(_, root)| root).chain(freezer) {
            if let Err(error) = remove_by_name(root, &group.name) {
                outcome = Err(error);
            }
        }
        outcome
    }

    /// Takes the parent of all groups away, if no other warden has groups in it.
    pub fn close(&self) {
        for root in self.roots.iter().map(|(_, root)| root).chain(&self.freezer) {
            // Not empty: somebody else still needs it. Not there: nobody ever did.
            unlinkat(root, PARENT, AtFlags::REMOVEDIR).ok();
        }
    }
}

pub(super) fn make_locked(
    root: &OwnedFd,
    name: &str,
    flavour: Flavour,
    controllers: &[Controller],
) -> io::Result<OwnedFd> {
    let path = format!("{PARENT}/{name}");
    for _ in 0..TRIES {
        match mkdirat(root, PARENT, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        if flavour == Flavour::V2 {
            let names: String =
                controllers.iter().map(|controller| format!("+{} ", controller.as_str())).collect();
            match write_at(root, &format!("{PARENT}/cgroup.subtree_control"), names.trim().as_bytes()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                result => result?,
            }
        }
        match mkdirat(root, path.as_str(), Mode::from_raw_mode(0o755)) {
            Ok(()) => {}
            // The parent went away between the two calls: its last user has just closed.
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(dir) = openat(root, path.as_str(), flags, Mode::empty()) else { continue };
        // A sweep may have taken it in the moment before the lock; then it is made anew.
        if flock(&dir, FlockOperation::NonBlockingLockExclusive).is_ok()
            && statat(&dir, "cgroup.procs", AtFlags::empty()).is_ok()
        {
            return Ok(dir);
        }
    }
    Err(io::Error::other("the group was taken away again and again"))
}

pub(super) fn remove_by_name(root: &OwnedFd, name: &str) -> io::Result<()> {
    let path = format!("{PARENT}/{name}");
    for attempt in 0..50_u64 {
        match unlinkat(root, path.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // The last process is dead but not yet forgotten by the kernel.
            Err(Errno::BUSY) => std::thread::sleep(std::time::Duration::from_micros(100 * (attempt + 1))),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::from(Errno::BUSY))
}

impl Group {
    pub(super) fn dir(&self, controller: Controller) -> Option<BorrowedFd<'_>> {
        self.dirs
            .iter()
            .find(|(controllers, _)| controllers.contains(&controller))
            .map(|(_, dir)| dir.as_fd())
    }

    /// Sets the limits.
    pub fn set(&self, limits: &Limits) -> io::Result<()> {
        let period = 100_000_u64;
        let quota = (u64::from(limits.millicpus) * period / 1000).max(1000);
        if let Some(dir) = self.dir(Controller::Memory) {
            let bytes = limits.memory.to_string();
            match self.flavour {
                Flavour::V1 => {
                    write_at(dir, "memory.limit_in_bytes", bytes.as_bytes())?;
                    optional(write_at(dir, "memory.memsw.limit_in_bytes", bytes.as_bytes()))?;
                }
                Flavour::V2 => {
                    write_at(dir, "memory.max", bytes.as_bytes())?;
                    optional(write_at(dir, "memory.swap.max", b"0"))?;
                }
            }
        }
        if let Some(dir) = self.dir(Controller::Pids) {
            write_at(dir, "pids.max", limits.pids.to_string().as_bytes())?;
        }
        if let Some(dir) = self.dir(Controller::Cpu) {
            match self.flavour {
                Flavour::V1 => write_at(dir, "cpu.cfs_quota_us", quota.to_string().as_bytes())?,
                Flavour::V2 => write_at(dir, "cpu.max", format!("{quota} {period}").as_bytes())?,
            }
        }
        Ok(())
    }

    /// The directory into which a new process can be born, on the unified interface.
    #[must_use]
    pub fn birthplace(&self) -> Option<BorrowedFd<'_>> {
        match self.flavour {
            Flavour::V1 => None,
            Flavour::V2 => self.dirs.first().map(|(_, dir)| dir.as_fd()),
        }
    }

    /// Moves the calling process in, on the old interface. Writing "0" to `tasks` moves only the caller and spares
    /// the lock that a move by number takes for the whole machine.
    pub fn join(&self) -> io::Result<()> {
        if self.flavour == Flavour::V1 {
            for (_, dir) in &self.dirs {
                write_at(dir, "tasks", b"0")?;
            }
        }
        Ok(())
    }

    /// What was counted. What cannot be read counts as nothing.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        if let Some(dir) = self.dir(Controller::Memory) {
            let (peak, events) = match self.flavour {
                Flavour::V1 => ("memory.max_usage_in_bytes", "memory.oom_control"),
                Flavour::V2 => ("memory.peak", "memory.events"),
            };
            counts.memory_peak =
                read_at(dir, peak).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
            counts.oom_kills = keyed(dir, events, "oom_kill");
        }
        if let Some(dir) = self.dir(Controller::Pids) {
            counts.pids_refused = keyed(dir, "pids.events", "max");
        }
        counts
    }
}

fn keyed(dir: BorrowedFd<'_>, file: &str, key: &str) -> u64 {
    let Ok(text) = read_at(dir, file) else { return 0 };
    text.lines()
        .filter_map(|line| line.split_once(' '))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(0)
}

/// Swap accounting may be switched off on a host that has no swap: a file that is not there limits nothing.
fn optional(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
