//! What a keeper counted, as plain numbers and as Prometheus reads them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::cards::Phase;

/// Upper bounds of the histogram of create latencies.
pub const BUCKETS: [Duration; 14] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(3),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(15),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(10),
];
/// System calls that are told apart. No kernel has so many; a guest's numbers might.
const MOST_CALLS: usize = 512;

/// What a keeper counted since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Boxes that were made for somebody.
    pub creates: u64,
    /// Creates that were answered with no, by code.
    pub refusals: BTreeMap<&'static str, u64>,
    /// Creates that failed for a reason of the host's or ours.
    pub failures: u64,
    /// Boxes that are there now, by phase.
    pub live: BTreeMap<Phase, u64>,
    /// Boxes that came from a pool.
    pub pool_hits: u64,
    /// Boxes that a pool could have given and had not.
    pub pool_misses: u64,
    /// Boxes that died in a pool.
    pub pool_poisoned: u64,
    /// Boxes that wait in pools now.
    pub pool_size: u64,
    /// Askers that wait for room now.
    pub waiting: u64,
    /// Commands that were given to boxes.
    pub execs: u64,
    /// Latencies of creates that succeeded.
    pub create_latency: Histogram,
    /// Denied system calls, by name.
    pub denials: BTreeMap<String, u64>,
    /// Alerts that reached a webhook.
    pub alerts_sent: u64,
    /// Alerts that did not.
    pub alerts_dropped: u64,
}

/// A histogram over [`BUCKETS`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many fell at or below each bound and above the one before.
    pub counts: [u64; BUCKETS.len()],
    /// How many there were, those above the last bound included.
    pub count: u64,
    /// All of them together.
    pub sum: Duration,
}

impl Histogram {
    pub(crate) fn add(&mut self, took: Duration) {
        let bucket = BUCKETS.iter().position(|bound| took <= *bound);
        if let Some(count) = bucket.and_then(|bucket| self.counts.get_mut(bucket)) {
            *count += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
    }
}

impl Metrics {
    pub(crate) fn denied(&mut self, syscall: &str, count: u64) {
        if let Some(known) = self.denials.get_mut(syscall) {
            *known = known.saturating_add(count);
        } else if self.denials.len() < MOST_CALLS {
            self.denials.insert(syscall.to_owned(), count);
        }
    }

    /// In the text format of Prometheus, version 0.0.4.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut page = Page(String::new());
        page.one("blastbox_creates_total", "counter", "Boxes that were made for somebody.", self.creates);
        page.many(
            "blastbox_create_refusals_total",
            "Creates that were answered with no.",
            "counter",
            "code",
            self.refusals.iter().map(|(code, count)| ((*code).to_owned(), *count)),
        );
        page.one("blastbox_create_failures_total", "counter", "Creates that failed.", self.failures);
        page.many(
            "blastbox_boxes",
            "Boxes that are there now.",
            "gauge",
            "phase",
            self.live.iter().map(|(phase, count)| (phase.as_str().to_owned(), *count)),
        );
        page.one("blastbox_pool_hits_total", "counter", "Boxes that came from a pool.", self.pool_hits);
        page.one("blastbox_pool_misses_total", "counter", "Boxes that no pool had.", self.pool_misses);
        page.one("blastbox_pool_poisoned_total", "counter", "Boxes that died in a pool.", self.pool_poisoned);
        page.one("blastbox_pool_boxes", "gauge", "Boxes that wait in pools now.", self.pool_size);
        page.one("blastbox_create_waiting", "gauge", "Askers that wait for room now.", self.waiting);
        page.one("blastbox_execs_total", "counter", "Commands that were given to boxes.", self.execs);
        page.one(
            "blastbox_alerts_sent_total",
            "counter",
            "Alerts that reached the webhook.",
            self.alerts_sent,
        );
        page.one("blastbox_alerts_dropped_total", "counter", "Alerts that did not.", self.alerts_dropped);
        page.histogram("blastbox_create_seconds", "Latency of creates.", &self.create_latency);
        page.many(
            "blastbox_denied_syscalls_total",
            "System calls that boxes tried and were denied.",
            "counter",
            "syscall",
            self.denials.iter().map(|(call, count)| (call.clone(), *count)),
        );
        page.0
    }
}

struct Page(String);

impl Page {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        self.0.write_fmt(line).ok();
        self.0.push('\n');
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        self.line(format_args!("{name} {value}"));
    }

    fn many(
        &mut self,
        name: &str,
        help: &str,
        kind: &str,
        label: &str,
        values: impl Iterator<Item = (String, u64)>,
    ) {
        self.head(name, kind, help);
        for (of, value) in values {
            // Every label is a word of ours: a phase, a code, the name of a system call.
            self.line(format_args!("{name}{{{label}=\"{of}\"}} {value}"));
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut so_far = 0;
        for (bound, count) in BUCKETS.iter().zip(histogram.counts) {
            so_far += count;
            self.line(format_args!("{name}_bucket{{le=\"{}\"}} {so_far}", bound.as_secs_f64()));
        }
        self.line(format_args!("{name}_bucket{{le=\"+Inf\"}} {}", histogram.count));
        self.line(format_args!("{name}_sum {}", histogram.sum.as_secs_f64()));
        self.line(format_args!("{name}_count {}", histogram.count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_printed_cumulatively_and_ends_with_everything() {
        let mut metrics = Metrics::default();
        for millis in [1, 2, 2, 60_000] {
            metrics.create_latency.add(Duration::from_millis(millis));
        }
        let page = metrics.to_prometheus();
        for line in [
            "blastbox_create_seconds_bucket{le=\"0.001\"} 1",
            "blastbox_create_seconds_bucket{le=\"0.002\"} 3",
            "blastbox_create_seconds_bucket{le=\"10\"} 3",
            "blastbox_create_seconds_bucket{le=\"+Inf\"} 4",
            "blastbox_create_seconds_sum 60.005",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in {page}");
        }
    }

    #[test]
    fn a_guest_cannot_make_the_denials_grow_without_end() {
        let mut metrics = Metrics::default();
        for number in 0..10_000_u64 {
            metrics.denied(&number.to_string(), number);
        }
        assert_eq!(metrics.denials.len(), MOST_CALLS);
    }
}
