//! The time as guests are told it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Clocks, and the times of files, go in steps of this many nanoseconds: fine ones help to spy on neighbours through caches.
pub(crate) const GRAIN: u64 = 20_000;

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    coarse(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A span in nanoseconds, without what is finer than a step.
pub(crate) fn coarse(span: Duration) -> u64 {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    nanos - nanos % GRAIN
}
