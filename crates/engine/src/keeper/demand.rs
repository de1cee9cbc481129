//! How many boxes of a kind should wait in a pool. Pure: whoever has the clock passes the time in.
//!
//! As many as were asked for within the last span, between a least and a most. So the first ask makes one, a rush fills
//! the pool, and a quiet span empties it.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::config::PoolConfig;

/// Failures in a row after which the wait between two tries does not grow any more.
const MOST_FAILURES: u32 = 6;

/// Who asked lately.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Never more than the most that a pool holds: more would not count.
    asks: VecDeque<Instant>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Demand {
    pub(crate) fn asked(&mut self, config: &PoolConfig, now: Instant) {
        self.asks.push_back(now);
        while self.asks.len() > config.max.max(1) {
            self.asks.pop_front();
        }
    }

    /// How many should wait, where never fewer than `floor` do.
    pub(crate) fn wanted(&self, config: &PoolConfig, floor: usize, now: Instant) -> usize {
        let recent = self.asks.iter().filter(|ask| now.duration_since(**ask) < config.ttl).count();
        recent.max(config.min).max(floor).min(config.max)
    }

    /// How many should be made now, where so many are wanted, and so many there or in the making.
    pub(crate) fn missing(&self, wanted: usize, there: usize, now: Instant) -> usize {
        if self.not_before.is_some_and(|at| now < at) {
            return 0;
        }
        wanted.saturating_sub(there)
    }

    /// When it was asked for last.
    pub(crate) fn last(&self) -> Option<Instant> {
        self.asks.back().copied()
    }

    pub(crate) fn made(&mut self) {
        self.failures = 0;
        self.not_before = None;
    }

    /// One could not be made: the next try waits, longer each time.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.failures = (self.failures + 1).min(MOST_FAILURES);
        self.not_before = now.checked_add(Duration::from_secs(1 << self.failures));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    proptest! {
        #[test]
        fn the_size_stays_between_its_bounds_and_follows_who_asked(
            (min, max) in (0_usize..5).prop_flat_map(|min| (Just(min), min..12)),
            floor in 0_usize..12,
            asks in prop::collection::vec(0_u64..200, 0..60),
        ) {
            let config = PoolConfig { min, max, ttl: TTL };
            let start = Instant::now();
            let mut asks = asks;
            asks.sort_unstable();
            let mut demand = Demand::default();
            for second in &asks {
                demand.asked(&config, start + Duration::from_secs(*second));
            }
            let now = start + Duration::from_secs(200);
            let recent = asks.iter().filter(|second| 200 - **second < 60).count();
            prop_assert_eq!(demand.wanted(&config, 0, now), recent.clamp(min, max));
            prop_assert_eq!(demand.wanted(&config, 0, now + TTL), min);
            prop_assert_eq!(demand.wanted(&config, floor, now + TTL), min.max(floor).min(max));
            prop_assert!(demand.asks.len() <= max.max(1));
        }
    }

    #[test]
    fn nothing_is_made_before_the_first_ask_or_beyond_what_is_there() {
        let config = PoolConfig { min: 0, max: 8, ttl: TTL };
        let now = Instant::now();
        let mut demand = Demand::default();
        let missing =
            |demand: &Demand, there, now| demand.missing(demand.wanted(&config, 0, now), there, now);
        assert_eq!(missing(&demand, 0, now), 0);
        demand.asked(&config, now);
        assert_eq!(missing(&demand, 0, now), 1);
        assert_eq!(missing(&demand, 1, now), 0);
    }

    #[test]
    fn a_kind_that_cannot_be_made_is_tried_ever_more_rarely() {
        let now = Instant::now();
        let mut demand = Demand::default();
        let missing = |demand: &Demand, there, now| demand.missing(1, there, now);
        for _ in 0..100 {
            demand.failed(now);
        }
        assert_eq!(missing(&demand, 0, now + Duration::from_secs(63)), 0);
        assert_eq!(missing(&demand, 0, now + Duration::from_secs(64)), 1);
        demand.made();
        assert_eq!(missing(&demand, 0, now), 1);
    }
}
