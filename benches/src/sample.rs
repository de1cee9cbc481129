//! Samples of one thing, and what is said of them.

use std::time::{Duration, Instant};

/// Times of one thing, in milliseconds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples(Vec<f64>);

/// What is said of samples. The fifth percentile is nearest to the cost on a quiet machine.
#[derive(Debug, Clone, Copy, serde::Serialize)]
pub(crate) struct Summary {
    /// How many.
    pub(crate) count: usize,
    /// The fifth percentile, in milliseconds.
    pub(crate) p5: f64,
    /// The middle one.
    pub(crate) median: f64,
    /// The ninety-fifth percentile.
    pub(crate) p95: f64,
    /// The ninety-ninth percentile.
    pub(crate) p99: f64,
}

impl Samples {
    /// None yet.
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds one.
    pub(crate) fn add(&mut self, took: Duration) {
        self.0.push(took.as_secs_f64() * 1e3);
    }

    /// Adds how long it has been.
    pub(crate) fn add_since(&mut self, start: Instant) {
        self.add(start.elapsed());
    }

    /// What is to be said.
    pub(crate) fn summary(&self) -> Summary {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |percent: usize| {
            let index = (sorted.len().saturating_sub(1) * percent).div_ceil(100);
            sorted.get(index).copied().unwrap_or(f64::NAN)
        };
        Summary { count: sorted.len(), p5: at(5), median: at(50), p95: at(95), p99: at(99) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_and_the_middle_is_the_middle() {
        let mut samples = Samples::default();
        for number in (1..=101).rev() {
            samples.add(Duration::from_millis(number));
        }
        let summary = samples.summary();
        assert_eq!((summary.count, summary.p5, summary.median), (101, 6.0, 51.0));
        assert_eq!((summary.p95, summary.p99), (96.0, 100.0));
        assert!(Samples::default().summary().median.is_nan());
    }
}
