//! What happens to boxes, as it is told to whoever follows.
//!
//! One ring for everybody, bounded whatever happens; each reader has a place in it. A reader that falls behind by more
//! than the ring holds is told that it missed something. Numbers never go back, so that a reader that was cut off goes
//! on where it was.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use blastbox_policy::Tier;
use blastbox_wire::BoxId;
use blastbox_wire::egress::{Carried, Door};
use blastbox_wire::receipt::{LimitName, Outcome, rfc3339};
use serde::Serialize;
use tokio::sync::Notify;

use super::cards::{ExecEnded, Tenant};
use crate::ledger::Alert;

/// Events that are kept for readers that are slow or come back.
const KEPT: usize = 4_096;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeeperEvent {
    /// Its number. They only grow, and have holes for whoever does not see every tenant.
    pub seq: u64,
    /// When, RFC 3339.
    pub at: String,
    /// Whose box; absent for what belongs to nobody.
    pub tenant: Option<Tenant>,
    /// Which box.
    pub box_id: Option<BoxId>,
    /// What.
    #[serde(flatten)]
    pub what: Happened,
    /// What a person should hear of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alert: Option<Alert>,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "event")]
pub enum Happened {
    /// A box was asked for, and let in.
    BoxCreated {
        /// Whether it came from a warm pool.
        warm: bool,
        /// The tier that it really has.
        tier: Tier,
    },
    /// Its agent has answered.
    BoxReady {
        /// From the question until then.
        took_ms: u64,
    },
    /// A command was given to it.
    ExecStarted {
        /// Its number in the box.
        exec: u32,
    },
    /// A command is over.
    ExecEnded {
        /// Its number in the box.
        exec: u32,
        /// How.
        ended: ExecEnded,
        /// Whether the keeper ended it because its own time was over.
        timed_out: bool,
    },
    /// Everything in it was stopped.
    BoxPaused,
    /// It goes on.
    BoxResumed,
    /// A new daemon took it over from one that was killed.
    BoxAdopted,
    /// Its life is over soon.
    DeadlineNear {
        /// So soon.
        seconds_left: u64,
    },
    /// It met a limit.
    LimitMet {
        /// Which.
        limit: LimitName,
    },
    /// It tried a system call that its profile denies.
    SyscallDenied {
        /// The call's name, or its number where it has none.
        syscall: String,
        /// How often.
        count: u64,
    },
    /// It changed a file or a name where nobody expects it, or tried to.
    UnexpectedWrite {
        /// The path in the box, cut and escaped; empty for those whose path is not known or not told apart.
        path: String,
        /// The stable word for why it is unexpected: `outside`, `poisons-tools`, `unreadable`.
        reason: String,
        /// The call that was used first.
        syscall: String,
        /// How often.
        count: u64,
    },
    /// A lease could not be renewed or revoked.
    SecretTrouble {
        /// The secret's name, or the file that should have told it.
        secret: String,
        /// What was tried, and why it did not work.
        why: String,
    },
    /// Its gateway kept it from something.
    NetworkDenied {
        /// The connection that it came in, where one was open already; 0 where none was, and for several together.
        flow: u64,
        /// By which way it came: `link`, `connect`, `socks`, `call`; absent for a question.
        #[serde(skip_serializing_if = "Option::is_none")]
        door: Option<Door>,
        /// The name, or the address where there was none.
        target: String,
        /// The port; 53 for a question about the name.
        port: u16,
        /// The type that was asked for, as DNS numbers it, where it was a question.
        #[serde(skip_serializing_if = "Option::is_none")]
        kind_asked: Option<u16>,
        /// Where it went, as far as that is known: what the box named itself, or the last address that the name was found at.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<std::net::IpAddr>,
        /// The stable word for why.
        reason: String,
        /// How often.
        count: u32,
        /// What it had carried until then; of all of them together, where it stands for several.
        #[serde(flatten)]
        carried: Carried,
    },
    /// It asked for a name that a rule names. Told in the ring of the network only.
    NameAsked {
        /// The name.
        target: String,
        /// The type that was asked for, as DNS numbers it.
        kind_asked: u16,
        /// How often.
        count: u32,
    },
    /// A secret was put into one of its requests. Told in the ring of the network only.
    SecretLent {
        /// The connection, by its number at the gateway.
        flow: u64,
        /// The secret's name.
        secret: String,
        /// The host that it goes to.
        target: String,
        /// The port.
        port: u16,
        /// Method and path.
        request: String,
    },
    /// So much of what its gateway saw could not be told. Told in the ring of the network only.
    NetworkUntold {
        /// How many records.
        count: u32,
    },
    /// Its owner changed what it may reach.
    RulesChanged {
        /// Rules that came, as `HOST:PORT`.
        allowed: Vec<String>,
        /// Rules that went.
        denied: Vec<String>,
        /// The digest of its policy from now on.
        policy: String,
    },
    /// It reached something through its gateway.
    NetworkOpened {
        /// The connection, by its number at the gateway.
        flow: u64,
        /// By which way it came.
        door: Door,
        /// The name, or the address where there was none.
        target: String,
        /// The port.
        port: u16,
        /// The address that was dialled.
        address: std::net::IpAddr,
        /// The rule that allowed it, by its host as written.
        rule: String,
    },
    /// A connection through its gateway is over.
    NetworkClosed {
        /// The connection.
        flow: u64,
        /// The name, or the address where there was none.
        target: String,
        /// The port.
        port: u16,
        /// What it has carried: `sent`, `received`, `millis`.
        #[serde(flatten)]
        carried: Carried,
        /// What ended it, where it was neither of both sides.
        #[serde(skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Nothing is left of it.
    BoxEnded {
        /// How it ended.
        outcome: Outcome,
        /// `killed`, `timed_out`, `idle`, `stopped`, or the code of what it met.
        reason: String,
    },
    /// A box died while it waited in a pool. Nobody got it.
    PoolPoisoned,
    /// A sink of the ledger takes no records.
    SinkUnreachable {
        /// Its name.
        sink: String,
        /// Why.
        why: String,
    },
    /// It takes them again.
    SinkReached {
        /// Its name.
        sink: String,
    },
    /// Alerts did not reach the webhook, and are not sent again.
    AlertsDropped {
        /// So many.
        alerts: u64,
    },
}

/// What an event reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventItem {
    /// This happened.
    Event(Arc<KeeperEvent>),
    /// The reader was too slow; so many events, of all tenants together, are lost to it.
    Missed {
        /// At most so many were meant for it.
        events: u64,
    },
}

/// Where events are told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hub(Arc<Ring>);

#[derive(Debug, Default)]
struct Ring {
    kept: Mutex<Kept>,
    told: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    events: VecDeque<Arc<KeeperEvent>>,
    /// The number of the newest event.
    newest: u64,
    closed: bool,
}

impl Ring {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Nobody panics while holding it.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hub {
    pub(crate) fn tell(&self, whose: Option<(&Tenant, &BoxId)>, what: Happened) {
        let at = wall_clock(SystemTime::now());
        let (tenant, box_id) = whose.map(|(tenant, id)| (tenant.clone(), id.clone())).unzip();
        let alert = what.alert();
        let mut kept = self.0.kept();
        kept.newest += 1;
        let seq = kept.newest;
        if kept.events.len() >= KEPT {
            kept.events.pop_front();
        }
        kept.events.push_back(Arc::new(KeeperEvent { seq, at, tenant, box_id, what, alert }));
        drop(kept);
        self.0.told.notify_waiters();
    }

    /// There will be no more.
    pub(crate) fn close(&self) {
        self.0.kept().closed = true;
        self.0.told.notify_waiters();
    }

    /// From after this number, where it is known; from now on, where none is given.
    pub(crate) fn subscribe(&self, tenant: Option<&Tenant>, after: Option<u64>) -> EventReader {
        let newest = self.0.kept().newest;
        // A number that was not given yet is another daemon's: whoever brings it has heard nothing of this one.
        let seen = after.map_or(newest, |after| if after > newest { 0 } else { after });
        EventReader { ring: Arc::clone(&self.0), tenant: tenant.cloned(), seen }
    }
}

/// Reads events. Several can read; none holds another up, or the boxes.
#[derive(Debug)]
pub struct EventReader {
    ring: Arc<Ring>,
    tenant: Option<Tenant>,
    /// The number of the last event that this reader got or passed over.
    seen: u64,
}

impl EventReader {
    /// The next event; `None` once the keeper has stopped. Cancel safe.
    pub async fn next(&mut self) -> Option<EventItem> {
        let ring = Arc::clone(&self.ring);
        loop {
            let told = ring.told.notified();
            tokio::pin!(told);
            // In line before the look, so that nothing told in between is slept through.
            told.as_mut().enable();
            match self.look() {
                Look::Found(item) => return Some(item),
                Look::Closed => return None,
                Look::Nothing => told.await,
            }
        }
    }

    fn look(&mut self) -> Look {
        let kept = self.ring.kept();
        let oldest = kept.events.front().map_or(kept.newest + 1, |event| event.seq);
        if self.seen + 1 < oldest {
            let events = oldest - self.seen - 1;
            self.seen = oldest - 1;
            return Look::Found(EventItem::Missed { events });
        }
        let skip = usize::try_from(self.seen + 1 - oldest).unwrap_or(usize::MAX);
        let mine = |event: &&Arc<KeeperEvent>| match &self.tenant {
            Some(tenant) => event.tenant.as_ref() == Some(tenant),
            None => true,
        };
        if let Some(event) = kept.events.iter().skip(skip).find(mine) {
            self.seen = event.seq;
            return Look::Found(EventItem::Event(Arc::clone(event)));
        }
        self.seen = kept.newest;
        if kept.closed { Look::Closed } else { Look::Nothing }
    }
}

enum Look {
    Found(EventItem),
    Nothing,
    Closed,
}

/// A moment of the wall clock, RFC 3339.
pub(crate) fn wall_clock(at: SystemTime) -> String {
    rfc3339(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> (Tenant, Tenant, BoxId) {
        ("a".parse().unwrap(), "b".parse().unwrap(), BoxId::from_random([1; 20]))
    }

    async fn seq(reader: &mut EventReader) -> u64 {
        match reader.next().await.unwrap() {
            EventItem::Event(event) => event.seq,
            EventItem::Missed { events } => panic!("missed {events}"),
        }
    }

    #[tokio::test]
    async fn a_tenant_hears_of_its_own_boxes_and_of_no_other() {
        let (a, b, id) = names();
        let hub = Hub::default();
        let (mut of_a, mut all) = (hub.subscribe(Some(&a), None), hub.subscribe(None, None));
        for tenant in [&b, &a, &b] {
            hub.tell(Some((tenant, &id)), Happened::BoxPaused);
        }
        hub.tell(None, Happened::PoolPoisoned);
        hub.close();
        assert_eq!(seq(&mut of_a).await, 2);
        assert_eq!(of_a.next().await, None);
        for number in 1..=4 {
            assert_eq!(seq(&mut all).await, number);
        }
    }

    #[tokio::test]
    async fn a_reader_that_falls_behind_is_told_and_one_that_comes_back_goes_on() {
        let hub = Hub::default();
        let mut slow = hub.subscribe(None, None);
        let flood = u64::try_from(KEPT).unwrap() + 10;
        for _ in 0..flood {
            hub.tell(None, Happened::PoolPoisoned);
        }
        assert_eq!(slow.next().await, Some(EventItem::Missed { events: 10 }));
        assert_eq!(seq(&mut slow).await, 11);
        assert_eq!(seq(&mut hub.subscribe(None, Some(flood - 1))).await, flood);
        assert!(hub.0.kept().events.len() <= KEPT);
    }

    #[tokio::test]
    async fn a_number_of_the_future_is_taken_for_now() {
        let hub = Hub::default();
        let mut reader = hub.subscribe(None, Some(u64::MAX));
        hub.tell(None, Happened::PoolPoisoned);
        assert_eq!(seq(&mut reader).await, 1);
    }
}
