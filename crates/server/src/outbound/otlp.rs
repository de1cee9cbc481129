//! The daemon's numbers for OpenTelemetry: OTLP over HTTP, in JSON. The same as `/metrics`, made from the same text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blastbox_engine::keeper::Keeper;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::target::Target;

const CUMULATIVE: u8 = 2;

/// Where numbers go, and how often.
#[derive(Debug)]
pub struct Otlp {
    target: Target,
    every: Duration,
}

impl Otlp {
    /// To the collector at this address (`/v1/metrics` is added), so often.
    #[must_use]
    pub fn new(target: &Target, every: Duration) -> Self {
        Self { target: target.at("/v1/metrics"), every }
    }

    /// Sends numbers for as long as it is let. What does not arrive is not sent again: the next numbers hold it.
    pub async fn run(self, keeper: Keeper) {
        let begun = SystemTime::now();
        let mut beat = interval(self.every);
        beat.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            beat.tick().await;
            let paper = paper(&keeper.metrics().to_prometheus(), begun, SystemTime::now());
            // A collector that is down is its owner's to notice.
            self.target.post("application/json", &[], paper.to_string().into_bytes()).await.ok();
        }
    }
}

fn nanos(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}

/// The numbers of a page of `/metrics`, as OTLP has them.
pub(super) fn paper(page: &str, begun: SystemTime, now: SystemTime) -> Value {
    let (begun, now) = (nanos(begun), nanos(now));
    let mut metrics = Vec::new();
    let mut lines = page.lines().peekable();
    while let Some(help) = lines.next() {
        let Some((name, help)) = help.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let kind = lines.next().and_then(|line| line.rsplit(' ').next()).unwrap_or_default();
        let mut samples = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            samples.extend(sample(line));
        }
        let points = |samples: &[Sample<'_>]| -> Vec<Value> {
            samples.iter().map(|sample| point(sample, &begun, &now)).collect()
        };
        let data = match kind {
            "histogram" => (
                "histogram",
                json!({
                    "aggregationTemporality": CUMULATIVE, "dataPoints": histograms(&samples, &begun, &now),
                }),
            ),
            "counter" => (
                "sum",
                json!({
                    "aggregationTemporality": CUMULATIVE, "isMonotonic": true, "dataPoints": points(&samples),
                }),
            ),
            _ => ("gauge", json!({ "dataPoints": points(&samples) })),
        };
        metrics.push(json!({ "name": name, "description": help, data.0: data.1 }));
    }
    let service = json!([{ "key": "service.name", "value": { "stringValue": "blastbox" } }]);
    let scope = json!({ "name": "blastbox", "version": env!("CARGO_PKG_VERSION") });
    json!({ "resourceMetrics": [{
        "resource": { "attributes": service },
        "scopeMetrics": [{ "scope": scope, "metrics": metrics }],
    }] })
}

type Labels<'a> = Vec<(&'a str, &'a str)>;

struct Sample<'a> {
    name: &'a str,
    labels: Labels<'a>,
    value: &'a str,
}

impl<'a> Sample<'a> {
    /// The bound of a bucket.
    fn bound(&self) -> Option<&'a str> {
        self.labels.iter().find(|(key, _)| *key == "le").map(|(_, of)| *of)
    }

    /// What tells it from others of its name.
    fn whose(&self) -> Labels<'a> {
        self.labels.iter().copied().filter(|(key, _)| *key != "le").collect()
    }
}

/// `name{label="of",label="of"} value`, as this daemon writes it: words of ours, with neither escapes nor commas in them.
fn sample(line: &str) -> Option<Sample<'_>> {
    let (name, value) = line.rsplit_once(' ')?;
    let Some((name, rest)) = name.split_once('{') else {
        return Some(Sample { name, labels: Vec::new(), value });
    };
    let pairs = rest.strip_suffix('}')?.split(',');
    let labels = pairs.map(|pair| pair.strip_suffix('"')?.split_once("=\"")).collect::<Option<_>>()?;
    Some(Sample { name, labels, value })
}

fn attributes(labels: &[(&str, &str)]) -> Vec<Value> {
    labels.iter().map(|(key, of)| json!({ "key": key, "value": { "stringValue": of } })).collect()
}

fn point(sample: &Sample<'_>, begun: &str, now: &str) -> Value {
    let attributes = attributes(&sample.labels);
    // A 64-bit integer is a string in the JSON of protobuf.
    json!({ "attributes": attributes, "startTimeUnixNano": begun, "timeUnixNano": now, "asInt": sample.value })
}

/// One for each that is told from others by its labels, in the order of the page.
fn histograms(samples: &[Sample<'_>], begun: &str, now: &str) -> Vec<Value> {
    let mut all: Vec<(Labels<'_>, Vec<&Sample<'_>>)> = Vec::new();
    for sample in samples {
        let whose = sample.whose();
        match all.iter_mut().find(|(known, _)| *known == whose) {
            Some((_, theirs)) => theirs.push(sample),
            None => all.push((whose, vec![sample])),
        }
    }
    all.iter().map(|(whose, theirs)| histogram(whose, theirs, begun, now)).collect()
}

/// Prometheus counts all below a bound; OTLP counts between bounds.
fn histogram(whose: &[(&str, &str)], samples: &[&Sample<'_>], begun: &str, now: &str) -> Value {
    let (mut bounds, mut counts, mut before) = (Vec::<f64>::new(), Vec::<String>::new(), 0_u64);
    for sample in samples.iter().filter(|sample| sample.name.ends_with("_bucket")) {
        let so_far: u64 = sample.value.parse().unwrap_or(before);
        counts.push(so_far.saturating_sub(before).to_string());
        before = so_far;
        bounds.extend(
            sample.bound().and_then(|bound| bound.parse().ok()).filter(|bound: &f64| bound.is_finite()),
        );
    }
    let of = |end: &str| samples.iter().find(|sample| sample.name.ends_with(end)).map(|sample| sample.value);
    let sum: f64 = of("_sum").and_then(|sum| sum.parse().ok()).unwrap_or(0.0);
    json!({
        "attributes": attributes(whose),
        "startTimeUnixNano": begun, "timeUnixNano": now, "count": of("_count").unwrap_or("0"), "sum": sum,
        "explicitBounds": bounds, "bucketCounts": counts,
    })
}
