//! How often connections to the ports of one sandbox may begin.
//!
//! Trust: whoever knows the id of a sandbox. Each connection is two processes in its box and two records of the ledger, which
//! strangers must not be able to fill: what the places for connections at once allow is still thousands a minute.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Connections that may begin at once, after a silence: a page and all that it names.
const MOST: u32 = 200;
/// After that, one may begin so often.
const EVERY: Duration = Duration::from_millis(50);

/// What may still begin.
#[derive(Debug)]
pub(in crate::e2b) struct Pace(Mutex<Instant>);

impl Pace {
    pub(in crate::e2b) fn new(now: Instant) -> Self {
        Self(Mutex::new(now))
    }

    /// Whether one more may begin now.
    pub(super) fn take(&self, now: Instant) -> bool {
        // The moment at which all that have begun would have been due, had they kept the pace.
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = (*due).max(now) + EVERY;
        let may = next.duration_since(now) <= EVERY * MOST;
        if may {
            *due = next;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_begin_at_once_and_then_one_at_a_time() {
        let begun = Instant::now();
        let pace = Pace::new(begun);
        let taken = (0..1_000).filter(|_| pace.take(begun)).count();
        assert_eq!(taken, 200);
        assert!(!pace.take(begun + EVERY / 2));
        assert!(pace.take(begun + EVERY) && !pace.take(begun + EVERY));
        // What is refused costs nothing, and a silence gives everything back.
        let later = begun + EVERY * 1_000;
        assert_eq!((0..1_000).filter(|_| pace.take(later)).count(), 200);
    }
}
