//! How much is done for one module.

use std::io;
use std::time::Duration;

use rustix::process::{Signal, nice, set_parent_process_death_signal};

use crate::trouble::MOST_CODE;

/// How far whoever compiles a stranger's module gives way to others.
const BEHIND: i32 = 10;

/// What the kernel's list of those that it ends for want of memory calls the first.
const FIRST_TO_GO: &str = "1000";

/// How much is done for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// What an operator's own guest needs, an interpreter above all: Python's takes 170 processor seconds and 2.2 GB. It may be compiled
    /// where no box can be made: on the machine that builds a release.
    Own,
    /// The same for a stranger's module, for whoever asks pays for it.
    Whole,
    /// What is done for one of many callers.
    Brief,
}

/// What one compilation may use.
pub(crate) struct Limits {
    /// Processor seconds.
    pub(crate) seconds: u64,
    /// Bytes of memory.
    pub(crate) memory: u64,
    /// Bytes of machine code.
    pub(crate) code: u64,
    /// One that sleeps uses no processor.
    pub(crate) patience: Duration,
}

impl Effort {
    pub(crate) const fn limits(self) -> Limits {
        let (seconds, memory, code) = match self {
            Self::Own | Self::Whole => (1200, 6 << 30, MOST_CODE),
            Self::Brief => (300, 3 << 30, 256 << 20),
        };
        Limits { seconds, memory, code, patience: Duration::from_secs(3 * seconds) }
    }

    /// What this process gives way to. Where it is one of many, whoever has asked for it is a daemon, and nobody waits for it without that.
    pub(crate) fn begin(self) -> io::Result<()> {
        if self == Self::Brief {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            nice(BEHIND)?;
            // Where memory runs out, a compiler goes, and not a daemon with everybody's boxes. Whoever looks into the module has it from
            // here. Everybody may make this of himself; where it cannot be, the limit on memory holds all the same.
            std::fs::write("/proc/self/oom_score_adj", FIRST_TO_GO).ok();
        }
        Ok(())
    }
}
