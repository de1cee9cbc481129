//! What the gateway tells the engine: every connection and every question.
//!
//! The box decides how much there is to tell, so nothing here grows with it: the queue is bounded, and a denial that
//! comes again while the first is hardly told is counted instead of told. What does not fit is counted too.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use blastbox_wire::egress::{Door, Reason, Record};
use tokio::sync::mpsc;
use tokio::time::{Duration, Instant};

use crate::decide::Target;

/// Records that may wait for the engine.
const QUEUE: usize = 1024;
/// Denials that are counted at the same time.
const COUNTED: usize = 256;
/// How long the same denial is only counted after it was told.
const QUIET: Duration = Duration::from_secs(1);

/// The teller: cheap to copy, never waits.
#[derive(Debug, Clone)]
pub struct Reporter {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    queue: mpsc::Sender<Record>,
    folded: Mutex<Folded>,
}

#[derive(Debug, Default)]
struct Folded {
    repeats: HashMap<Repeated, Again>,
    lost: u32,
}

/// What makes two denials the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Repeated {
    Denied { door: Door, target: String, port: u16, reason: Reason },
    Question { name: String, kind: u16, denied: Option<Reason> },
}

#[derive(Debug)]
struct Again {
    told: Instant,
    count: u32,
}

impl Reporter {
    /// A teller and the end at which its records come out. Only records: what does not fit is dropped, and an answer to the
    /// engine must not be.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Record>) {
        let (queue, out) = mpsc::channel(QUEUE);
        (Self { inner: Arc::new(Inner { queue, folded: Mutex::default() }) }, out)
    }

    /// Tells one record.
    pub fn tell(&self, record: Record) {
        if self.inner.queue.try_send(record).is_err() {
            let mut folded = self.inner.folded.lock().unwrap_or_else(PoisonError::into_inner);
            folded.lost = folded.lost.saturating_add(1);
        }
    }

    /// Tells records of what must not happen untold: all of them, or none where there is no room for all.
    pub fn try_tell(&self, records: Vec<Record>) -> Result<(), Untold> {
        if records.is_empty() {
            return Ok(());
        }
        let places = self.inner.queue.try_reserve_many(records.len()).map_err(|_| Untold)?;
        for (place, record) in places.zip(records) {
            place.send(record);
        }
        Ok(())
    }

    /// Tells a denial, or counts it where the same was told a moment ago.
    pub fn denied(&self, flow: u64, door: Door, target: &Target, port: u16, reason: Reason) {
        self.denied_text(flow, door, target.to_string(), port, reason);
    }

    /// Tells a denial of something that has no target of ours: a packet, a name that is none.
    pub fn denied_text(&self, flow: u64, door: Door, target: String, port: u16, reason: Reason) {
        let same = Repeated::Denied { door, target: target.clone(), port, reason };
        if self.is_news(same) {
            self.tell(Record::Denied { flow, door, target, port, reason, count: 1 });
        }
    }

    /// Tells a question, or counts it where the same was told a moment ago.
    pub fn question(&self, name: String, kind: u16, denied: Option<Reason>) {
        if self.is_news(Repeated::Question { name: name.clone(), kind, denied }) {
            self.tell(Record::Question { name, kind, denied, count: 1 });
        }
    }

    fn is_news(&self, same: Repeated) -> bool {
        let now = Instant::now();
        let mut folded = self.inner.folded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(again) = folded.repeats.get_mut(&same) {
            again.count = again.count.saturating_add(1);
            return false;
        }
        if folded.repeats.len() >= COUNTED {
            folded.lost = folded.lost.saturating_add(1);
            return false;
        }
        folded.repeats.insert(same, Again { told: now, count: 0 });
        true
    }

    /// Tells what was only counted and is old enough now. To be called every second or so, and with
    /// [`Settle::Everything`] at the end.
    pub fn settle(&self, settle: Settle) {
        let now = Instant::now();
        let (due, lost) = {
            let mut folded = self.inner.folded.lock().unwrap_or_else(PoisonError::into_inner);
            let old = |again: &Again| settle == Settle::Everything || now.duration_since(again.told) >= QUIET;
            let due: Vec<_> = folded.repeats.extract_if(|_, again| old(again)).collect();
            (due, std::mem::take(&mut folded.lost))
        };
        for (same, again) in due.into_iter().filter(|(_, again)| again.count > 0) {
            let count = again.count;
            self.tell(match same {
                Repeated::Denied { door, target, port, reason } => {
                    Record::Denied { flow: 0, door, target, port, reason, count }
                }
                Repeated::Question { name, kind, denied } => Record::Question { name, kind, denied, count },
            });
        }
        if lost > 0 {
            self.tell(Record::Lost { count: lost });
        }
    }
}

/// There was no room: the engine does not read in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it cannot be recorded now; ask again")]
pub struct Untold;

/// What is told now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settle {
    /// What is old enough.
    WhatIsDue,
    /// All of it: the gateway ends.
    Everything,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(out: &mut mpsc::Receiver<Record>) -> Vec<Record> {
        let mut records = Vec::new();
        while let Ok(record) = out.try_recv() {
            records.push(record);
        }
        records
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_is_told_once_and_then_counted() {
        let (reporter, mut out) = Reporter::new();
        for _ in 0..1000 {
            reporter.denied_text(0, Door::Link, "10.0.0.1".into(), 80, Reason::AddressNotAllowed);
        }
        assert_eq!(drain(&mut out).len(), 1);
        reporter.settle(Settle::WhatIsDue);
        assert_eq!(drain(&mut out), []);
        tokio::time::advance(QUIET).await;
        reporter.settle(Settle::WhatIsDue);
        assert!(matches!(drain(&mut out)[..], [Record::Denied { count: 999, .. }]));
    }

    #[tokio::test]
    async fn what_must_be_told_is_told_whole_or_refused() {
        let (reporter, mut out) = Reporter::new();
        let one = || Record::Lost { count: 1 };
        for _ in 0..QUEUE - 1 {
            reporter.tell(one());
        }
        assert_eq!(reporter.try_tell(vec![one(), one()]), Err(Untold));
        assert_eq!(reporter.try_tell(vec![one()]), Ok(()));
        assert_eq!(reporter.try_tell(vec![one()]), Err(Untold));
        assert_eq!(drain(&mut out).len(), QUEUE);
        assert_eq!(reporter.try_tell(vec![one(), one()]), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_reads_is_counted_and_never_kept() {
        let (reporter, mut out) = Reporter::new();
        for number in 0..(QUEUE + COUNTED) {
            reporter.tell(Record::Lost { count: u32::try_from(number).unwrap() });
        }
        assert_eq!(drain(&mut out).len(), QUEUE);
        reporter.settle(Settle::Everything);
        assert_eq!(drain(&mut out), [Record::Lost { count: 256 }]);
    }
}
