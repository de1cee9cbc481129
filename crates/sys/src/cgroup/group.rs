//! The group of one box. It holds no descriptor: a warden with a thousand boxes has no more of them than one with ten,
//! and so costs no more to fork.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Mode, mkdirat, unlinkat};
use rustix::io::Errno;

use super::nest::{Nest, make_locked};
use super::site::Room;
use super::sweep::end_processes;
use super::{Controller, Flavour, NEST, Site, read_at};
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
    /// Processor time of everybody who was in it, in microseconds; 0 where the kernel keeps that elsewhere.
    pub cpu_micros: u64,
}

/// The group of one box.
#[derive(Debug)]
pub struct Group {
    pub(super) name: String,
    /// Whether it has ever been stopped, and so has a group in the freezer.
    pub(super) was_paused: Cell<bool>,
}

impl Site {
    /// Makes a group. It has no limits yet.
    pub fn make(&self, name: &str) -> io::Result<Group> {
        let name = if self.room == Room::One { format!("{NEST}{name}") } else { name.to_owned() };
        let group = Group { name, was_paused: Cell::new(false) };
        for nest in self.nests()? {
            let made = match self.room {
                Room::One => {
                    make_locked(&nest.dir, &group.name).map(|lock| self.locks.borrow_mut().push(lock))
                }
                Room::Many => {
                    mkdirat(&nest.dir, &group.name, Mode::from_raw_mode(0o755)).map_err(io::Error::from)
                }
            };
            if made.is_err() {
                self.remove(&group)?;
                return made.map(|()| group);
            }
        }
        Ok(group)
    }

    /// Takes a group away. Its processes must have ended: on an error it is still there, and maybe one of them.
    pub fn remove(&self, group: &Group) -> io::Result<()> {
        self.in_each_nest(group, |nest| remove_by_name(&nest.dir, &group.name))
    }

    /// Takes a group away that should have been gone long ago, and ends whatever is in it. One look, no waiting.
    pub fn release(&self, group: &Group) -> io::Result<()> {
        self.in_each_nest(group, |nest| {
            end_processes(&nest.dir, &group.name);
            match unlinkat(&nest.dir, group.name.as_str(), AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Does something in every hierarchy, whatever comes of the others. The freezer first: a stopped process dies only
    /// when it is let go.
    fn in_each_nest(&self, group: &Group, act: impl Fn(&Nest) -> io::Result<()>) -> io::Result<()> {
        let freezer = self.freezer_nest().filter(|_| group.was_paused.get());
        let mut outcome = Ok(());
        for nest in freezer.into_iter().chain(self.nests()?) {
            let done = act(nest);
            outcome = outcome.and(done);
        }
        outcome
    }

    /// Sets the limits of a group.
    pub fn set(&self, group: &Group, limits: &Limits) -> io::Result<()> {
        let period = 100_000_u64;
        let quota = (u64::from(limits.millicpus) * period / 1000).max(1000);
        let write = |nest: &Nest, file: &str, text: &str| {
            write_at(&nest.dir, &format!("{}/{file}", group.name), text.as_bytes())
        };
        if let Some(nest) = self.nest(Controller::Memory) {
            let bytes = limits.memory.to_string();
            match nest.flavour {
                Flavour::V1 => {
                    // Memory alone may not be more than memory with swap, so that a group that was limited before can be
                    // limited lower in the one order only, and higher in the other.
                    if write(nest, "memory.limit_in_bytes", &bytes).is_err() {
                        optional(write(nest, "memory.memsw.limit_in_bytes", &bytes))?;
                        write(nest, "memory.limit_in_bytes", &bytes)?;
                    }
                    optional(write(nest, "memory.memsw.limit_in_bytes", &bytes))?;
                }
                Flavour::V2 => {
                    write(nest, "memory.max", &bytes)?;
                    optional(write(nest, "memory.swap.max", "0"))?;
                }
            }
        }
        if let Some(nest) = self.nest(Controller::Pids) {
            write(nest, "pids.max", &limits.pids.to_string())?;
        }
        if let Some(nest) = self.nest(Controller::Cpu) {
            match nest.flavour {
                Flavour::V1 => write(nest, "cpu.cfs_quota_us", &quota.to_string())?,
                Flavour::V2 => write(nest, "cpu.max", &format!("{quota} {period}"))?,
            }
        }
        Ok(())
    }

    /// The directory into which a new process can be born, on the unified interface.
    pub fn birthplace(&self, group: &Group) -> io::Result<Option<OwnedFd>> {
        let unified = self.nests()?.iter().find(|nest| nest.flavour == Flavour::V2);
        unified.map(|nest| nest.open(&group.name)).transpose()
    }

    /// Moves the calling process into a group, on the old interface. Writing "0" to `tasks` moves only the caller and
    /// spares the lock that a move by number takes for the whole machine.
    pub fn join(&self, group: &Group) -> io::Result<()> {
        for nest in self.nests()?.iter().filter(|nest| nest.flavour == Flavour::V1) {
            write_at(&nest.dir, &format!("{}/tasks", group.name), b"0")?;
        }
        Ok(())
    }

    /// What a group has counted. What cannot be read counts as nothing.
    #[must_use]
    pub fn counts(&self, group: &Group) -> Counts {
        let mut counts = Counts::default();
        let read = |nest: &Nest, file: &str| {
            read_at(&nest.dir, &format!("{}/{file}", group.name)).unwrap_or_default()
        };
        if let Some(nest) = self.nest(Controller::Memory) {
            let (peak, events) = match nest.flavour {
                Flavour::V1 => ("memory.max_usage_in_bytes", "memory.oom_control"),
                Flavour::V2 => ("memory.peak", "memory.events"),
            };
            counts.memory_peak = read(nest, peak).trim().parse().unwrap_or(0);
            counts.oom_kills = keyed(&read(nest, events), "oom_kill");
        }
        if let Some(nest) = self.nest(Controller::Pids) {
            counts.pids_refused = keyed(&read(nest, "pids.events"), "max");
        }
        if let Some(nest) = self.nest(Controller::Cpu) {
            counts.cpu_micros = match nest.flavour {
                // There where both controllers are mounted together, as on most such hosts.
                Flavour::V1 => read(nest, "cpuacct.usage").trim().parse::<u64>().unwrap_or(0) / 1000,
                Flavour::V2 => keyed(&read(nest, "cpu.stat"), "usage_usec"),
            };
        }
        counts
    }
}

pub(super) fn remove_by_name(dir: &OwnedFd, name: &str) -> io::Result<()> {
    for attempt in 0..50_u64 {
        match unlinkat(dir, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // The last process is dead but not yet forgotten by the kernel.
            Err(Errno::BUSY) => std::thread::sleep(std::time::Duration::from_micros(100 * (attempt + 1))),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::from(Errno::BUSY))
}

fn keyed(text: &str, key: &str) -> u64 {
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
