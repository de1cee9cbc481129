//! How much a sandbox uses, measured when somebody asks: what its processes say of themselves, and its file system.
//!
//! The numbers come from inside the box, so that a payload may lie in them: whatever it prints is bounded and becomes some
//! number, and nothing is decided by it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::http::{Response, StatusCode};
use blastbox_engine::keeper::{Phase, Tenant};
use serde_json::{Map, Value, json};

use crate::e2b::desk::Desk;
use crate::e2b::no::No;
use crate::e2b::sandbox::Sandbox;
use crate::e2b::{errand, form, moment};

/// Measurements that are kept.
const KEPT: usize = 720;
/// Sooner than this nothing is measured anew.
const BREATH: Duration = Duration::from_secs(1);
/// How long the measuring itself may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most sandboxes of one question.
const MOST_IDS: usize = 100;
const TICKS_PER_SECOND: f64 = 100.0;
const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const SCRIPT: &str = "cat /proc/[0-9]*/stat 2>/dev/null; echo =; stat -f -c '%S %b %f' /home/user";

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    at: SystemTime,
    ticks: u64,
    cpu_percent: f64,
    memory: u64,
    disk: u64,
}

/// The measurements of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Samples(Mutex<VecDeque<Sample>>);

impl Samples {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Sample>> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> Option<Sample> {
        self.lock().back().copied()
    }

    fn add(&self, raw: Raw, cpus: u64) -> Sample {
        let at = SystemTime::now();
        let mut all = self.lock();
        let before = all.back().map(|last| (last.at, last.ticks));
        let cpu_percent = before.map_or(0.0, |before| percent(before, (at, raw.ticks), cpus));
        let sample = Sample { at, ticks: raw.ticks, cpu_percent, memory: raw.memory, disk: raw.disk };
        if all.len() >= KEPT {
            all.pop_front();
        }
        all.push_back(sample);
        sample
    }
}

fn percent(before: (SystemTime, u64), now: (SystemTime, u64), cpus: u64) -> f64 {
    let elapsed = now.0.duration_since(before.0).unwrap_or_default().as_secs_f64();
    let ticks = u32::try_from(now.1.saturating_sub(before.1)).unwrap_or(u32::MAX);
    let cpus = f64::from(u32::try_from(cpus).unwrap_or(1));
    if elapsed <= 0.0 { 0.0 } else { f64::from(ticks) / TICKS_PER_SECOND / elapsed * 100.0 / cpus }
}

/// What the box printed about itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Raw {
    ticks: u64,
    memory: u64,
    disk: u64,
}

/// Reads it. What cannot be read counts as nothing.
fn read(text: &str) -> Raw {
    let (processes, disk) = text.split_once("=\n").unwrap_or((text, ""));
    let mut raw = Raw::default();
    for line in processes.lines() {
        // The name of a process is in brackets and may hold anything, other brackets too.
        let Some((_, rest)) = line.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |place: usize| fields.get(place).and_then(|text| text.parse().ok()).unwrap_or(0_u64);
        let ticks = (11..=14).map(field).fold(0_u64, u64::saturating_add);
        raw.ticks = raw.ticks.saturating_add(ticks);
        raw.memory = raw.memory.saturating_add(field(21).saturating_mul(PAGE));
    }
    let numbers: Vec<u64> = disk.split_ascii_whitespace().filter_map(|text| text.parse().ok()).collect();
    if let [block, total, free] = numbers.as_slice() {
        raw.disk = block.saturating_mul(total.saturating_sub(*free));
    }
    raw
}

/// Measures, unless that was done a moment ago. A sandbox that is paused or ends meanwhile is not measured.
pub(crate) async fn measure(desk: &Desk, sandbox: &Sandbox) -> Option<Sample> {
    if let Some(last) = sandbox.samples.last()
        && last.at.elapsed().is_ok_and(|ago| ago < BREATH)
    {
        return Some(last);
    }
    let done = errand::run(desk, sandbox, &["/bin/sh", "-c", SCRIPT], PATIENCE).await.ok()?;
    Some(sandbox.samples.add(read(&String::from_utf8_lossy(&done.stdout)), sandbox.size.cpus))
}

impl Sample {
    fn show(&self, sandbox: &Sandbox) -> Value {
        json!({
            "timestamp": moment::text(self.at),
            "timestampUnix": moment::millis(self.at) / 1_000,
            "cpuCount": sandbox.size.cpus,
            "cpuUsedPct": self.cpu_percent,
            "memUsed": self.memory,
            "memTotal": sandbox.size.memory_mib * MIB,
            "memCache": self.disk,
            "diskUsed": self.disk,
            "diskTotal": sandbox.size.disk_mib * MIB,
        })
    }

    /// As envd's own `/metrics` shows it.
    pub(crate) fn show_inside(&self, sandbox: &Sandbox) -> Value {
        json!({
            "ts": moment::millis(self.at) / 1_000,
            "cpu_count": sandbox.size.cpus,
            "cpu_used_pct": self.cpu_percent,
            "mem_total": sandbox.size.memory_mib * MIB,
            "mem_used": self.memory,
            "mem_cache": self.disk,
            "mem_total_mib": sandbox.size.memory_mib,
            "mem_used_mib": self.memory / MIB,
            "disk_used": self.disk,
            "disk_total": sandbox.size.disk_mib * MIB,
        })
    }
}

fn moment_of(query: &[(String, String)], name: &str) -> Result<Option<i64>, No> {
    let Some(text) = form::value(query, name).filter(|text| !text.is_empty()) else { return Ok(None) };
    let seconds = text.parse::<i64>().ok().filter(|seconds| *seconds >= 0);
    seconds.map(Some).ok_or_else(|| No::bad(format!("{name} is not a number of seconds since 1970")))
}

/// `GET /sandboxes/{id}/metrics`.
pub(super) async fn one(
    desk: &Desk,
    tenant: &Tenant,
    id: &str,
    query: Option<&str>,
) -> Result<Response<Body>, No> {
    let query = form::pairs(query);
    let (start, end) = (moment_of(&query, "start")?, moment_of(&query, "end")?);
    if start.zip(end).is_some_and(|(start, end)| start > end) {
        return Err(No::bad("start is after end"));
    }
    let (sandbox, card) = desk.own(tenant, id)?;
    if card.phase != Phase::Paused {
        measure(desk, &sandbox).await;
    }
    let within = |sample: &&Sample| {
        let at = moment::millis(sample.at) / 1_000;
        start.is_none_or(|start| at >= start) && end.is_none_or(|end| at <= end)
    };
    let shown: Vec<Value> =
        sandbox.samples.lock().iter().filter(within).map(|sample| sample.show(&sandbox)).collect();
    Ok(super::json(StatusCode::OK, shown.into()))
}

/// `GET /sandboxes/metrics?sandbox_ids=a,b`: the last of each.
pub(super) async fn many(desk: &Desk, tenant: &Tenant, query: Option<&str>) -> Result<Response<Body>, No> {
    let query = form::pairs(query);
    let ids: Vec<&str> = form::value(&query, "sandbox_ids")
        .unwrap_or_default()
        .split(',')
        .filter(|id| !id.is_empty())
        .collect();
    if ids.is_empty() || ids.len() > MOST_IDS {
        return Err(No::bad(format!("sandbox_ids names 1 to {MOST_IDS} sandboxes")));
    }
    let mut shown = Map::new();
    for id in ids {
        let Ok((sandbox, card)) = desk.own(tenant, id) else { continue };
        let sample = if card.phase == Phase::Paused { None } else { measure(desk, &sandbox).await };
        if let Some(sample) = sample.or_else(|| sandbox.samples.last()) {
            shown.insert(id.to_owned(), sample.show(&sandbox));
        }
    }
    Ok(super::json(StatusCode::OK, json!({ "sandboxes": shown })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_processes_say_is_added_up_and_nonsense_counts_as_nothing() {
        let line = |name: &str| {
            format!(
                "7 ({name}) S 1 7 7 0 -1 0 1 0 0 0 10 5 1 1 20 0 1 0 100 5000 30 18446744073709551615 1\n"
            )
        };
        let text = format!("{}{}=\n4096 1000 900\n", line("sh"), line("a) R 9 (b"));
        assert_eq!(read(&text), Raw { ticks: 34, memory: 60 * 4096, disk: 100 * 4096 });
        for bad in ["", "=\n", ")))\n=\nx y z", "=\n1 2\n", "7 (a) S\n=\n1 1 2"] {
            assert_eq!((read(bad).memory, read(bad).disk), (0, 0), "{bad}");
        }
        read(&format!("1 (a) {}\n=\n{} {} 0", "18446744073709551615 ".repeat(40), u64::MAX, u64::MAX));
    }

    #[test]
    fn percent_is_of_all_processors() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(percent((at(10), 100), (at(12), 300), 1), 100.0);
        assert_eq!(percent((at(10), 100), (at(12), 300), 2), 50.0);
        assert_eq!(percent((at(10), 100), (at(10), 300), 1), 0.0);
        assert_eq!(percent((at(10), 300), (at(12), 100), 1), 0.0);
    }
}
