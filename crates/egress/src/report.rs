//! What the gateway tells the engine: every connection and every question.
//!
//! The box decides how much there is to tell, so nothing here grows with it: the queue is bounded, and a denial that
//! comes again while the first is hardly told is counted instead of told. What does not fit is counted too.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use blastbox_wire::egress::{Carried, Door, Reason, Record};
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
    /// Of the last of them.
    address: Option<IpAddr>,
    /// By all of them.
    carried: Carried,
}

/// Something that was refused.
#[derive(Debug, Clone)]
pub struct Denial {
    /// The connection that it came in; 0 where none was open.
    pub flow: u64,
    /// By which way.
    pub door: Door,
    /// The name, or the address where there was none.
    pub target: String,
    /// The port.
    pub port: u16,
    /// Where it went, as far as that is known.
    pub address: Option<IpAddr>,
    /// Why.
    pub reason: Reason,
    /// What its connection had carried until then.
    pub carried: Carried,
}

impl Denial {
    /// Of something that asked for this target before there was a connection.
    #[must_use]
    pub fn of(door: Door, target: &Target, port: u16, reason: Reason) -> Self {
        let address = match target {
            Target::Address(address) => Some(*address),
            Target::Name(_) => None,
        };
        Self { address, ..Self::of_text(door, target.to_string(), port, reason) }
    }

    /// Of something that has no target of ours: a packet, a name that is none.
    #[must_use]
    pub fn of_text(door: Door, target: String, port: u16, reason: Reason) -> Self {
        Self { flow: 0, door, target, port, address: None, reason, carried: Carried::default() }
    }
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
    pub fn denied(&self, denial: Denial) {
        let Denial { flow, door, target, port, address, reason, carried } = denial;
        let same = Repeated::Denied { door, target: target.clone(), port, reason };
        if self.is_news(same, address, carried) {
            self.tell(Record::Denied { flow, door, target, port, address, reason, count: 1, carried });
        }
    }

    /// Tells a question, or counts it where the same was told a moment ago.
    pub fn question(&self, name: String, kind: u16, denied: Option<Reason>) {
        let same = Repeated::Question { name: name.clone(), kind, denied };
        if self.is_news(same, None, Carried::default()) {
            self.tell(Record::Question { name, kind, denied, count: 1 });
        }
    }

    fn is_news(&self, same: Repeated, address: Option<IpAddr>, carried: Carried) -> bool {
        let now = Instant::now();
        let mut folded = self.inner.folded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(again) = folded.repeats.get_mut(&same) {
            again.count = again.count.saturating_add(1);
            again.address = address.or(again.address);
            again.carried = sum(again.carried, carried);
            return false;
        }
        if folded.repeats.len() >= COUNTED {
            folded.lost = folded.lost.saturating_add(1);
            return false;
        }
        // What it carried itself is told with it.
        let again = Again { told: now, count: 0, address: None, carried: Carried::default() };
        folded.repeats.insert(same, again);
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
            let Again { count, address, carried, .. } = again;
            self.tell(match same {
                Repeated::Denied { door, target, port, reason } => {
                    Record::Denied { flow: 0, door, target, port, address, reason, count, carried }
                }
                Repeated::Question { name, kind, denied } => Record::Question { name, kind, denied, count },
            });
        }
        if lost > 0 {
            self.tell(Record::Lost { count: lost });
        }
    }
}

/// What two have carried together.
fn sum(one: Carried, other: Carried) -> Carried {
    Carried {
        sent: one.sent.saturating_add(other.sent),
        received: one.received.saturating_add(other.received),
        millis: one.millis.saturating_add(other.millis),
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
        let target = Target::Address("10.0.0.1".parse().unwrap());
        let address = Some("10.0.0.1".parse().unwrap());
        for _ in 0..1000 {
            let denial = Denial::of(Door::Link, &target, 80, Reason::AddressNotAllowed);
            let carried = Carried { sent: 3, received: 0, millis: 2 };
            reporter.denied(Denial { flow: 7, carried, ..denial });
        }
        let first = drain(&mut out);
        let [Record::Denied { flow: 7, address: told, carried, .. }] = first[..] else { panic!("{first:?}") };
        assert_eq!((told, carried), (address, Carried { sent: 3, received: 0, millis: 2 }));
        reporter.settle(Settle::WhatIsDue);
        assert_eq!(drain(&mut out), []);
        tokio::time::advance(QUIET).await;
        reporter.settle(Settle::WhatIsDue);
        let rest = drain(&mut out);
        let [Record::Denied { flow: 0, address: told, count: 999, carried, .. }] = rest[..] else {
            panic!("{rest:?}");
        };
        assert_eq!((told, carried), (address, Carried { sent: 2997, received: 0, millis: 1998 }));
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
