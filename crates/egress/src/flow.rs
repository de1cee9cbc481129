//! One connection of the box, wherever it came in.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use blastbox_wire::egress::{Door, Reason, Record};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::decide::{Allowed, Target};
use crate::limits::Slot;
use crate::report::Reporter;

/// One connection of the box that was allowed to come in. Its end is reported when the last copy is dropped.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Its number; never used again by this gateway.
    pub id: u64,
    /// By which way it came.
    pub door: Door,
    /// The permission under which it came in. A new one is asked for whatever is said in it.
    pub allowed: Allowed,
    life: Arc<Life>,
}

/// What a connection counts and holds while it lives.
#[derive(Debug)]
struct Life {
    id: u64,
    target: Target,
    port: u16,
    begun: Instant,
    reporter: Reporter,
    opened: AtomicBool,
    /// The place of the reason in [`Reason::ALL`], plus one; 0 for none.
    ended_by: AtomicU8,
    /// Whether it has to end, whatever the two sides still have to say.
    stop: Arc<Stop>,
    sent: AtomicU64,
    received: AtomicU64,
    /// Its place among the connections that may be open at the same time.
    _slot: Slot,
}

impl Flow {
    pub(crate) fn new(id: u64, door: Door, allowed: Allowed, reporter: Reporter, slot: Slot) -> Self {
        let life = Life {
            id,
            target: allowed.target().clone(),
            port: allowed.port(),
            begun: Instant::now(),
            reporter,
            opened: AtomicBool::new(false),
            ended_by: AtomicU8::new(0),
            stop: Arc::default(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            _slot: slot,
        };
        Self { id, door, allowed, life: Arc::new(life) }
    }

    /// Where to.
    #[must_use]
    pub fn target(&self) -> &Target {
        self.allowed.target()
    }

    /// On which port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.allowed.port()
    }

    /// Reports that something in this connection was refused. The caller closes it, or answers and goes on.
    pub fn deny(&self, reason: Reason) {
        self.life.reporter.denied(self.id, self.door, self.target(), self.port(), reason);
        self.end_by(reason);
    }

    /// Reports that the target was dialled for this connection.
    pub(crate) fn opened(&self, address: SocketAddr) {
        self.life.opened.store(true, Ordering::Relaxed);
        self.life.reporter.tell(Record::Opened {
            flow: self.id,
            door: self.door,
            target: self.target().to_string(),
            port: self.port(),
            address: address.ip(),
            rule: self.allowed.rule().to_owned(),
        });
    }

    /// Notes what ends it, for the report. The first reason stays.
    pub fn end_by(&self, reason: Reason) {
        self.life.end_by(reason);
    }

    /// What this connection is known by to somebody who does not keep it alive.
    pub(crate) fn known(&self) -> Known {
        Known { allowed: self.allowed.clone(), life: Arc::downgrade(&self.life) }
    }

    /// Does what there is to do for this connection, until the rules do not allow it any more. Not by looking while bytes
    /// are carried: where one side takes nothing, none are, and what was taken from a box would go on waiting.
    pub(crate) async fn unless_stopped(&self, work: impl Future<Output = ()>) {
        if self.life.stop.cut(work).await.is_none() {
            self.deny(Reason::RulesChanged);
        }
    }

    /// What tells that it has to end, for whoever does not keep it alive.
    pub(crate) fn stop(&self) -> Arc<Stop> {
        Arc::clone(&self.life.stop)
    }

    pub(crate) fn add_sent(&self, bytes: u64) {
        self.life.sent.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn add_received(&self, bytes: u64) {
        self.life.received.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A connection, as far as somebody has to know it who does not keep it alive.
#[derive(Debug)]
pub(crate) struct Known {
    allowed: Allowed,
    life: Weak<Life>,
}

impl Known {
    /// Whether it still is.
    pub(crate) fn is_alive(&self) -> bool {
        self.life.strong_count() > 0
    }

    /// The permission under which it came in.
    pub(crate) fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    /// Ends it.
    pub(crate) fn stop(&self, reason: Reason) {
        let Some(life) = self.life.upgrade() else { return };
        life.end_by(reason);
        life.stop.raise();
    }
}

/// That a connection has to end, told to everybody who does something for it.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    raised: AtomicBool,
    bell: Notify,
}

impl Stop {
    pub(crate) fn raise(&self) {
        self.raised.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    /// Works until it is raised; `None` then, and the work is dropped where it stands.
    pub(crate) async fn cut<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let told = self.bell.notified();
        tokio::pin!(told);
        // In line before the look, so that it is not raised in between.
        told.as_mut().enable();
        if self.raised.load(Ordering::Acquire) {
            return None;
        }
        tokio::select! {
            biased;
            () = told => None,
            done = work => Some(done),
        }
    }
}

impl Life {
    fn end_by(&self, reason: Reason) {
        let place = Reason::ALL.iter().position(|known| *known == reason).unwrap_or(0);
        let number = u8::try_from(place + 1).unwrap_or(0);
        // Losing the race means that another reason came first.
        self.ended_by.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed).ok();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // Whoever works for it without keeping it alive.
        self.stop.raise();
        if !self.opened.load(Ordering::Relaxed) {
            // Nothing was ever dialled: whoever refused it has said so.
            return;
        }
        let number = usize::from(self.ended_by.load(Ordering::Relaxed));
        self.reporter.tell(Record::Closed {
            flow: self.id,
            target: self.target.to_string(),
            port: self.port,
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            millis: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            reason: number.checked_sub(1).and_then(|place| Reason::ALL.get(place)).copied(),
        });
    }
}

/// What was dialled for a connection.
#[derive(Debug)]
pub struct Dialled {
    /// The connection to the target.
    pub stream: tokio::net::TcpStream,
    /// The address that was checked, and that it is connected to.
    pub address: SocketAddr,
}
