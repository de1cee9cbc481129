//! Memory of the whole box: what guests and files may hold together, so that a guest hears "no" before the kernel's
//! limit on the worker ends everybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is left.
#[derive(Debug, Clone)]
pub(crate) struct Budget(Arc<AtomicU64>);

impl Budget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self(Arc::new(AtomicU64::new(bytes)))
    }

    /// Takes this much, or nothing.
    #[must_use]
    pub(crate) fn take(&self, bytes: u64) -> bool {
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(bytes)).is_ok()
    }

    /// Gives back what was taken.
    pub(crate) fn give(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::AcqRel);
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
