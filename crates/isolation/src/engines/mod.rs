//! Programs that play virtual machines: the seam between what a machine is ([`VmSpec`]) and who plays it. What another one would have to
//! bring says `docs/decisions/0024-what-an-engine-brings.md`.
//!
//! What only one of them knows – its files on the host, its words for a machine, its orders for sleep and waking – lies in a folder of its
//! own, and nothing outside this one names it but the list of system calls that it is held to.

mod qemu;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use blastbox_wire::BoxId;
use blastbox_wire::plan::MonitorKind;

use crate::tiers::microvm::spec::{Form, Processor, VmSpec};

/// A program that plays virtual machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MachineEngine {
    /// QEMU, from 7.2 on.
    Qemu,
}

/// What an engine's program takes for itself, and is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Room {
    /// Threads beside the guest's processors.
    pub(crate) threads: u32,
    /// Open files.
    pub(crate) open_files: u32,
    /// Bytes that it maps and does not use: stacks, arenas of its threads.
    pub(crate) mapped: u64,
}

/// An order to a machine whose answers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MonitorOrder {
    /// Before all others, once for each line.
    Begin,
    /// What is written and read from now on has the machine's memory in it.
    WithMemory,
    /// It has not: who reads it has the memory already.
    WithoutMemory,
    /// As fast as it goes: nobody else needs the wire.
    Fast,
    /// Takes the descriptor that comes with it.
    Take,
    /// Writes the state there and stops.
    Write,
    /// Goes on from the state that comes from there.
    Read,
    /// How far that is.
    Ask,
    /// Goes on after it has stopped, or as if it had not begun to.
    GoOn,
    /// Lets a state be that is being written.
    Cancel,
}

/// What an engine answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MonitorAnswer {
    /// It did that.
    Done,
    /// It could not.
    Failed(String),
    /// The state is written, or read.
    Whole,
    /// It is being written, or read.
    NotYet,
}

impl MachineEngine {
    /// All of them, the one that is taken first in front.
    pub const ALL: [Self; 1] = [Self::Qemu];

    /// By which the ledger and what sleeps know it. It never changes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
        }
    }

    /// As people write it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU",
        }
    }

    /// The list of system calls that it is held to.
    pub(crate) const fn kind(self) -> MonitorKind {
        match self {
            Self::Qemu => MonitorKind::Qemu,
        }
    }

    /// Where its program lies: beneath /usr, which is what it is shown. Not PATH: that is the caller's.
    pub(crate) fn program(self) -> &'static Path {
        match self {
            Self::Qemu => Path::new(qemu::PROGRAM),
        }
    }

    /// What it reads of the host at its start, where it is there.
    pub(crate) const fn reads(self) -> &'static [&'static str] {
        match self {
            Self::Qemu => &qemu::READS,
        }
    }

    /// Its version, in what its program answers to `--version`.
    pub(crate) fn version(self, says: &str) -> Option<(u32, u32)> {
        match self {
            Self::Qemu => qemu::version(says),
        }
    }

    /// The oldest version that will do.
    pub(crate) const fn oldest(self) -> (u32, u32) {
        match self {
            Self::Qemu => qemu::OLDEST,
        }
    }

    /// Why there is no machine where none of them is installed.
    pub(crate) fn absent() -> String {
        let one = |engine: Self| format!("{} is not installed ({})", engine.title(), engine.install());
        Self::ALL.map(one).join(", and ")
    }

    /// The command that installs it.
    pub(crate) const fn install(self) -> &'static str {
        match self {
            Self::Qemu => qemu::INSTALL,
        }
    }

    /// Where a version comes from that is new enough.
    pub(crate) const fn upgrade(self) -> &'static str {
        match self {
            Self::Qemu => qemu::UPGRADE,
        }
    }

    /// Why this version of it will not do; `None`: it will.
    pub(crate) fn unfit(self, version: Option<(u32, u32)>) -> Option<String> {
        let (title, (least, lesser)) = (self.title(), self.oldest());
        match version {
            Some(version) if version >= self.oldest() => None,
            Some((major, minor)) => Some(format!(
                "{title} {major}.{minor} is older than {least}.{lesser}: upgrade it ({}; `blastbox doctor` says more)",
                self.upgrade()
            )),
            None => Some(format!("{title} does not say its version ({})", self.install())),
        }
    }

    /// What it takes for itself of a box's memory.
    pub(crate) const fn overhead(self, processor: Processor) -> u64 {
        match self {
            Self::Qemu => qemu::overhead(processor),
        }
    }

    pub(crate) const fn room(self) -> Room {
        match self {
            Self::Qemu => qemu::ROOM,
        }
    }

    /// What its program is told of a machine, its own name first.
    pub(crate) fn arguments(self, machine: &VmSpec, form: Form, box_id: &BoxId) -> Vec<String> {
        match self {
            Self::Qemu => qemu::arguments(machine, form, box_id),
        }
    }

    /// Has a machine that will be started go on from a state. Nobody reads an answer: what it could not do ends it, and then it never
    /// says a word.
    pub fn wake(self, line: impl AsFd, state: BorrowedFd<'_>) -> io::Result<()> {
        match self {
            Self::Qemu => qemu::wake(line, state),
        }
    }

    /// Says an order under a number, by which its answer is known among all others.
    pub fn say(
        self,
        line: impl AsFd,
        number: u32,
        order: MonitorOrder,
        with: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        match self {
            Self::Qemu => qemu::say(line, number, order, with),
        }
    }

    /// What a line of its answers says to the order with this number; `None`: it is about something else.
    #[must_use]
    pub fn hear(self, answer: &str, number: u32) -> Option<MonitorAnswer> {
        match self {
            Self::Qemu => qemu::hear(answer, number),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_engine_has_a_name_of_its_own_and_says_why_a_version_will_not_do() {
        let names: BTreeSet<&str> = MachineEngine::ALL.iter().map(|engine| engine.name()).collect();
        assert_eq!(names.len(), MachineEngine::ALL.len());
        for engine in MachineEngine::ALL {
            let (major, minor) = engine.oldest();
            assert_eq!(serde_json::to_value(engine).unwrap(), engine.name());
            assert!(engine.program().starts_with("/usr"), "{engine:?}");
            assert_eq!(engine.unfit(Some((major, minor))), None);
            assert_eq!(engine.unfit(Some((major + 1, 0))), None);
            for bad in [Some((major - 1, 99)), None] {
                assert!(engine.unfit(bad).unwrap().contains(engine.title()), "{bad:?}");
            }
        }
    }
}
