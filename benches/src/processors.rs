//! Promises about two processors, on machines that have more.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::paper::Wrong;

/// This process, and all that it starts, is on two of its processors as long as this lives.
#[derive(Debug)]
pub(crate) struct Two {
    before: CpuSet,
}

impl Two {
    /// Keeps to two.
    pub(crate) fn keep_to() -> Result<Self, Wrong> {
        let before = sched_getaffinity(None)?;
        let mut two = CpuSet::new();
        for processor in (0..CpuSet::MAX_CPU).filter(|processor| before.is_set(*processor)).take(2) {
            two.set(processor);
        }
        sched_setaffinity(None, &two)?;
        Ok(Self { before })
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        // What the process had before, it may have again.
        sched_setaffinity(None, &self.before).ok();
    }
}
