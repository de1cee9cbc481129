//! Memory of the whole box: what guests and files may hold together, so that a guest hears "no" before the kernel's
//! limit on the worker ends everybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is left.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    left: Arc<AtomicU64>,
    all: u64,
}

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { left: Arc::new(AtomicU64::new(bytes)), all: bytes }
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
}
