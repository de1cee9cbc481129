//! One connection of the box, wherever it came in.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use blastbox_wire::egress::{Carried, Door, Reason, Record};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::decide::{Allowed, Target};
use crate::limits::{Meter, Slot};
use crate::report::{Denial, Reporter};

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
    /// Whether something in it was refused, which is told then.
    denied: AtomicBool,
    /// Whether a dial was tried: the first was counted when it was let in.
    dialled: AtomicBool,
    /// Whether a dial was given up before anybody knew what became of it.
    abandoned: AtomicBool,
    /// Whether a line to the target has the place that comes with the slot.
    lined: Arc<AtomicBool>,
    /// The place of the reason in [`Reason::ALL`], plus one; 0 for none.
    ended_by: AtomicU8,
    /// Whether it has to end, whatever the two sides still have to say.
    stop: Arc<Stop>,
    /// Where its target was last found, for the report: what was dialled, or must not be.
    found: Mutex<Option<IpAddr>>,
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
            denied: AtomicBool::new(false),
            dialled: AtomicBool::new(false),
            abandoned: AtomicBool::new(false),
            lined: Arc::default(),
            ended_by: AtomicU8::new(0),
            stop: Arc::default(),
            found: Mutex::default(),
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
        self.life.denied.store(true, Ordering::Relaxed);
        let denial = Denial::of(self.door, self.target(), self.port(), reason);
        let found = *self.life.found.lock().unwrap_or_else(PoisonError::into_inner);
        let address = found.or(denial.address);
        self.life.reporter.denied(Denial { flow: self.id, address, carried: self.life.carried(), ..denial });
        self.end_by(reason);
    }

    /// Notes where its target was found, whether it may be dialled there or not.
    pub(crate) fn found_at(&self, address: Option<IpAddr>) {
        *self.life.found.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// Somebody else tells that it was refused.
    pub(crate) fn leave_untold(&self) {
        self.life.denied.store(true, Ordering::Relaxed);
    }

    /// Reports that the target was dialled for this connection.
    pub(crate) fn opened(&self, address: SocketAddr) {
        self.life.opened.store(true, Ordering::Relaxed);
        self.found_at(Some(address.ip()));
        self.life.reporter.tell(Record::Opened {
            flow: self.id,
            door: self.door,
            target: self.target().to_string(),
            port: self.port(),
            address: address.ip(),
            rule: self.allowed.rule().to_owned(),
        });
    }

    /// The place of one more line to the target, if there is one. A dial beyond the first, and a line beside another, are of what
    /// all connections of the box may: requests at the same time, or given up one after the other, would make any number of them.
    pub(crate) fn place(&self, meter: &Meter) -> Result<Place, Reason> {
        let is_first = !self.life.dialled.swap(true, Ordering::AcqRel);
        if self.life.lined.swap(true, Ordering::AcqRel) {
            return Ok(Place::Further { _slot: meter.connection(self.target())? });
        }
        let place = Place::Own(Arc::clone(&self.life.lined));
        if !is_first {
            meter.dial(self.target())?;
        }
        Ok(place)
    }

    /// A dial begins. Dropped before [`Dialling::over`], it was given up: whoever asked for it has gone, and nobody tells of it but the
    /// connection's end.
    pub(crate) fn dialling(&self) -> Dialling {
        Dialling { life: Arc::clone(&self.life), is_over: false }
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
    fn carried(&self) -> Carried {
        Carried {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            millis: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

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
        let dialled = self.opened.load(Ordering::Relaxed) || self.abandoned.load(Ordering::Relaxed);
        if self.denied.load(Ordering::Relaxed) && !dialled {
            // Nobody outside has heard of it, and whoever refused it has said so.
            return;
        }
        // Also where it came to nothing (a client that says nothing, or does not believe the box's authority): it was let in, and every
        // connection is told of.
        let number = usize::from(self.ended_by.load(Ordering::Relaxed));
        self.reporter.tell(Record::Closed {
            flow: self.id,
            target: self.target.to_string(),
            port: self.port,
            carried: self.carried(),
            reason: number.checked_sub(1).and_then(|place| Reason::ALL.get(place)).copied(),
        });
    }
}

/// A dial under way.
#[derive(Debug)]
pub(crate) struct Dialling {
    life: Arc<Life>,
    is_over: bool,
}

impl Dialling {
    /// What became of it is known, and told.
    pub(crate) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Dialling {
    fn drop(&mut self) {
        if !self.is_over {
            self.life.abandoned.store(true, Ordering::Relaxed);
        }
    }
}

/// The place of one line to the target of a connection. Given back when dropped.
#[derive(Debug)]
pub(crate) enum Place {
    /// The one that comes with the connection's own slot.
    Own(Arc<AtomicBool>),
    /// Beside it, with a slot of its own.
    Further {
        /// Only held.
        _slot: Slot,
    },
}

impl Drop for Place {
    fn drop(&mut self) {
        match self {
            Self::Own(lined) => lined.store(false, Ordering::Release),
            Self::Further { .. } => {}
        }
    }
}

/// What was dialled for a connection. Its place is held as long as the stream is.
#[derive(Debug)]
pub struct Dialled {
    /// The connection to the target.
    pub stream: TcpStream,
    /// The address that was checked, and that it is connected to.
    pub address: SocketAddr,
    pub(crate) _place: Place,
}

impl AsyncRead for Dialled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Dialled {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
