//! Memory of the whole box: what guests and files may hold together, so that a guest hears "no" before the kernel's
//! limit on the worker ends everybody. What was said "no" to is told to the host.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What is left.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    left: Arc<AtomicU64>,
    all: u64,
    met: Arc<Met>,
}

/// A limit that guests meet, and live on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Bytes of files.
    Disk,
    /// Files and directories.
    Inodes,
    /// Memory of guests and files together.
    Memory,
}

/// Limits that were met since somebody looked last.
#[derive(Debug, Default)]
pub(crate) struct Met {
    disk: AtomicBool,
    inodes: AtomicBool,
    memory: AtomicBool,
}

impl Met {
    /// Which of them, in the order of the frame that tells it; none of them afterwards. Processes there are none.
    pub(crate) fn take(&self) -> [bool; 4] {
        // Most often there is nothing to take, and threads that only look do not get in each other's way.
        let taken = |met: &AtomicBool| met.load(Ordering::Acquire) && met.swap(false, Ordering::AcqRel);
        [taken(&self.disk), taken(&self.inodes), taken(&self.memory), false]
    }
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(bytes)), all: bytes, met: Arc::default() }
    }

    /// Somebody was told "no" for this reason.
    pub(crate) fn meet(&self, limit: Limit) {
        let met = match limit {
            Limit::Disk => &self.met.disk,
            Limit::Inodes => &self.met.inodes,
            Limit::Memory => &self.met.memory,
        };
        met.store(true, Ordering::Release);
    }

    /// What was met, for whoever tells the host.
    pub(crate) fn met(&self) -> Arc<Met> {
        Arc::clone(&self.met)
    }

    /// Takes this much, or nothing.
    #[must_use]
    pub(crate) fn take(&self, bytes: u64) -> bool {
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes)).is_ok()
    }

    /// Whether most of it is left: then some may be spent on what nobody has asked for yet.
    pub(crate) fn is_ample(&self) -> bool {
        self.left.load(Ordering::Acquire) > self.all / 2
    }

    /// Gives back what was taken.
    pub(crate) fn give(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_is_left_is_not_taken_and_takes_nothing() {
        let budget = Budget::new(10);
        assert!(budget.take(8));
        assert!(!budget.take(3));
        assert!(budget.take(2));
        budget.give(10);
        assert!(budget.take(10));
    }

    #[test]
    fn what_was_met_is_told_once() {
        let budget = Budget::new(10);
        let met = budget.met();
        assert_eq!(met.take(), [false; 4]);
        budget.clone().meet(Limit::Memory);
        budget.meet(Limit::Disk);
        budget.meet(Limit::Disk);
        assert_eq!(met.take(), [true, false, true, false]);
        budget.meet(Limit::Inodes);
        assert_eq!((met.take(), met.take()), ([false, true, false, false], [false; 4]));
    }
}
