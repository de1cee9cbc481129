//! The time as guests are told it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Clocks, and the times of files, go in steps of this many nanoseconds: fine ones help to spy on neighbours through caches.
pub(crate) const GRAIN: u64 = 20_000;
/// When every run begins that can be repeated: the first moment of 2025.
pub(crate) const BEGINNING: u64 = 1_735_689_600_000_000_000;

/// The clocks of one guest.
#[derive(Debug)]
pub(crate) enum Clock {
    /// The host's.
    Real { born: Instant },
    /// They go one step further whenever somebody looks, and as far as is slept: the same in every run.
    Counted { nanos: u64 },
}

impl Clock {
    pub(crate) fn new(deterministic: bool) -> Self {
        if deterministic { Self::Counted { nanos: 0 } } else { Self::Real { born: Instant::now() } }
    }

    /// Nanoseconds since 1970.
    pub(crate) fn wall(&mut self) -> u64 {
        match self {
            Self::Real { .. } => now(),
            Self::Counted { nanos } => BEGINNING.saturating_add(step(nanos)),
        }
    }

    /// Nanoseconds of the guest's life.
    pub(crate) fn lived(&mut self) -> u64 {
        match self {
            Self::Real { born } => coarse(born.elapsed()),
            Self::Counted { nanos } => step(nanos),
        }
    }

    /// The same, without that this look is counted.
    pub(crate) fn peek(&self) -> u64 {
        match self {
            Self::Real { born } => coarse(born.elapsed()),
            Self::Counted { nanos } => *nanos,
        }
    }

    /// Whether it is the same in every run.
    pub(crate) fn is_counted(&self) -> bool {
        matches!(self, Self::Counted { .. })
    }

    /// The guest has slept.
    pub(crate) fn slept(&mut self, span: Duration) {
        if let Self::Counted { nanos } = self {
            *nanos = nanos.saturating_add(coarse(span));
        }
    }
}

fn step(nanos: &mut u64) -> u64 {
    *nanos = nanos.saturating_add(GRAIN);
    *nanos
}

/// Nanoseconds since 1970.
pub(crate) fn now() -> u64 {
    coarse(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A span in nanoseconds, without what is finer than a step.
pub(crate) fn coarse(span: Duration) -> u64 {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    nanos - nanos % GRAIN
}
