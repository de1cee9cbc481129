//! What a keeper counted, as plain numbers and as Prometheus reads them.

mod page;

use std::collections::BTreeMap;
use std::time::Duration;

use blastbox_policy::Tier;
use blastbox_wire::agent::Oddity;

use self::page::Page;
use super::cards::Phase;

/// Upper bounds of histograms: of a create, which takes milliseconds, and of a command, which may take hours.
pub const BUCKETS: [Duration; 17] = [
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
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3_600),
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
    /// Boxes that are there now, by the tier that they have and where they are in their lives.
    pub live: BTreeMap<(Tier, Phase), u64>,
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
    /// How long each stretch of a box's life took.
    pub stretches: BTreeMap<Stretch, Histogram>,
    /// Denied system calls, by name.
    pub denials: BTreeMap<String, u64>,
    /// Writes where nobody expects them, by reason.
    pub unexpected_writes: BTreeMap<&'static str, u64>,
    /// What boxes were kept from by their gateways, by reason.
    pub network_denials: BTreeMap<String, u64>,
    /// Alerts that reached a webhook.
    pub alerts_sent: u64,
    /// Alerts that did not.
    pub alerts_dropped: u64,
}

/// A stretch of a box's life that somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stretch {
    /// From the question until there was room.
    Queue,
    /// From being written down until its agent answered, those of pools included.
    Provision,
    /// From a command's order until its end, or from its adoption.
    Exec,
    /// From the end of its life until nothing is left of it and every sink that must have its end has acknowledged it. An end that
    /// none acknowledges is not counted.
    Teardown,
}

impl Stretch {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Provision => "provision",
            Self::Exec => "exec",
            Self::Teardown => "teardown",
        }
    }
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

    pub(crate) fn wrote(&mut self, oddity: Oddity, count: u64) {
        let known = self.unexpected_writes.entry(oddity.as_str()).or_default();
        *known = known.saturating_add(count);
    }

    pub(crate) fn took(&mut self, stretch: Stretch, took: Duration) {
        self.stretches.entry(stretch).or_default().add(took);
    }

    /// The reasons are a closed list, so that their number is bounded.
    pub(crate) fn kept_from(&mut self, reason: &str, count: u64) {
        let known = self.network_denials.entry(reason.to_owned()).or_default();
        *known = known.saturating_add(count);
    }

    /// In the text format of Prometheus, version 0.0.4.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut page = Page::default();
        page.one("blastbox_creates_total", "counter", "Boxes that were made for somebody.", self.creates);
        page.many(
            "blastbox_create_refusals_total",
            "Creates that were answered with no.",
            "counter",
            ["code"],
            self.refusals.iter().map(|(code, count)| ([(*code).to_owned()], *count)),
        );
        page.one("blastbox_create_failures_total", "counter", "Creates that failed.", self.failures);
        page.many(
            "blastbox_boxes",
            "Boxes that are there now.",
            "gauge",
            ["tier", "state"],
            self.live.iter().map(|((tier, phase), count)| {
                ([tier.as_str().to_owned(), phase.as_str().to_owned()], *count)
            }),
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
        page.histograms(
            "blastbox_phase_seconds",
            "How long boxes wait for room, are made, run a command, are taken down.",
            "phase",
            self.stretches.iter().map(|(stretch, histogram)| (stretch.as_str(), histogram)),
        );
        page.many(
            "blastbox_denied_syscalls_total",
            "System calls that boxes tried and were denied.",
            "counter",
            ["syscall"],
            self.denials.iter().map(|(call, count)| ([call.clone()], *count)),
        );
        page.many(
            "blastbox_unexpected_writes_total",
            "Files and names that boxes changed or tried to change where nobody expects it.",
            "counter",
            ["reason"],
            self.unexpected_writes.iter().map(|(reason, count)| ([(*reason).to_owned()], *count)),
        );
        page.many(
            "blastbox_denied_network_total",
            "What boxes were kept from by their gateways.",
            "counter",
            ["reason"],
            self.network_denials.iter().map(|(reason, count)| ([reason.clone()], *count)),
        );
        page.0
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
    fn phases_tiers_states_and_reasons_are_labels() {
        let mut metrics = Metrics::default();
        metrics.took(Stretch::Queue, Duration::from_millis(4));
        metrics.took(Stretch::Exec, Duration::from_secs(90));
        metrics.kept_from("host-not-allowed", 2);
        metrics.kept_from("host-not-allowed", 3);
        metrics.live.insert((Tier::Jail, Phase::Paused), 7);
        let page = metrics.to_prometheus();
        for line in [
            "blastbox_phase_seconds_bucket{phase=\"queue\",le=\"0.003\"} 0",
            "blastbox_phase_seconds_bucket{phase=\"queue\",le=\"0.005\"} 1",
            "blastbox_phase_seconds_bucket{phase=\"exec\",le=\"600\"} 1",
            "blastbox_phase_seconds_sum{phase=\"exec\"} 90",
            "blastbox_phase_seconds_count{phase=\"exec\"} 1",
            "blastbox_boxes{tier=\"jail\",state=\"paused\"} 7",
            "blastbox_denied_network_total{reason=\"host-not-allowed\"} 5",
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
