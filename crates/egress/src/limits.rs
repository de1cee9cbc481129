//! How much a box may do at its gateway: connections, rates, bytes.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use blastbox_policy::NetworkLimits;
use blastbox_wire::egress::Reason;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Duration, Instant, Sleep};

use crate::decide::Target;
use crate::end::End;
use crate::flow::Flow;

/// Hosts whose bytes are counted one by one. Where everything is open there are as many as a box likes to reach, and each would be kept.
const MOST_HOSTS: usize = 8192;

/// What a box has used, held against what it may use.
#[derive(Debug)]
pub struct Meter {
    flows: Arc<AtomicU32>,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    limits: NetworkLimits,
    connections: Bucket,
    questions: Bucket,
    bandwidth: Bucket,
    bytes: u64,
    by_host: HashMap<Target, u64>,
    /// Of all hosts that came when [`MOST_HOSTS`] were counted: together they may use what one may.
    by_others: u64,
}

/// A place among the connections that may be open at the same time. Given back when dropped.
#[derive(Debug)]
pub struct Slot(Arc<AtomicU32>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Fills by a rate up to one second's worth. May go below zero: who made it so pays by waiting.
#[derive(Debug)]
struct Bucket {
    left: f64,
    rate: f64,
    filled: Instant,
}

impl Bucket {
    fn new(rate: f64, now: Instant) -> Self {
        // A second's worth of pause may be spent at once, and then a second's worth more within the next.
        Self { left: rate, rate, filled: now }
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + passed * self.rate).min(self.rate);
        self.filled = now;
    }

    fn take_one(&mut self, now: Instant) -> bool {
        self.fill(now);
        let has = self.left >= 1.0;
        if has {
            self.left -= 1.0;
        }
        has
    }

    /// Takes what has been used already, and says how long to wait before using more.
    fn take_back(&mut self, amount: f64, now: Instant) -> Duration {
        self.fill(now);
        self.left -= amount;
        if self.left >= 0.0 {
            Duration::ZERO
        } else {
            Duration::from_secs_f64((-self.left / self.rate).min(60.0))
        }
    }
}

impl Meter {
    /// Counts against these limits.
    #[must_use]
    pub fn new(limits: &NetworkLimits) -> Self {
        let now = Instant::now();
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate of 2^53 bytes in a second needs no last digit"
        )]
        let bandwidth = limits.bandwidth.0 as f64;
        let inner = Inner {
            limits: *limits,
            connections: Bucket::new(f64::from(limits.connections_per_second), now),
            questions: Bucket::new(f64::from(limits.questions_per_second), now),
            bandwidth: Bucket::new(bandwidth, now),
            bytes: 0,
            by_host: HashMap::new(),
            by_others: 0,
        };
        Self { flows: Arc::default(), inner: Mutex::new(inner) }
    }

    /// Takes other limits. What was used stays used.
    pub fn limit(&self, limits: &NetworkLimits) {
        let mut inner = self.lock();
        inner.limits = *limits;
        inner.connections.rate = f64::from(limits.connections_per_second);
        inner.questions.rate = f64::from(limits.questions_per_second);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate of 2^53 bytes in a second needs no last digit"
        )]
        let bandwidth = limits.bandwidth.0 as f64;
        inner.bandwidth.rate = bandwidth;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more connection, if it may be.
    pub fn connection(&self, target: &Target) -> Result<Slot, Reason> {
        let mut inner = self.lock();
        inner.spent(target)?;
        if self.flows.load(Ordering::Relaxed) >= inner.limits.flows {
            return Err(Reason::FlowLimit);
        }
        if !inner.connections.take_one(Instant::now()) {
            return Err(Reason::RateLimit);
        }
        self.flows.fetch_add(1, Ordering::Relaxed);
        Ok(Slot(Arc::clone(&self.flows)))
    }

    /// One more dial for a connection that has its slot already, if it may be.
    pub fn dial(&self, target: &Target) -> Result<(), Reason> {
        let mut inner = self.lock();
        inner.spent(target)?;
        if inner.connections.take_one(Instant::now()) { Ok(()) } else { Err(Reason::RateLimit) }
    }

    /// One more question, if it may be.
    pub fn question(&self) -> Result<(), Reason> {
        if self.lock().questions.take_one(Instant::now()) { Ok(()) } else { Err(Reason::RateLimit) }
    }

    /// How many different names may be asked for under one wildcard.
    #[must_use]
    pub fn names_per_wildcard(&self) -> usize {
        usize::try_from(self.lock().limits.names_per_wildcard).unwrap_or(usize::MAX)
    }

    /// How long to wait before more bytes may pass: until what has passed is paid for.
    pub fn owed(&self) -> Duration {
        self.lock().bandwidth.take_back(0.0, Instant::now())
    }

    /// Bytes have passed. How long to wait before more may, or why no more may.
    pub fn passed(&self, target: &Target, bytes: usize) -> Result<Duration, Reason> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let mut inner = self.lock();
        inner.bytes = inner.bytes.saturating_add(bytes);
        let counted = inner.by_host.len();
        match inner.by_host.get_mut(target) {
            Some(used) => *used = used.saturating_add(bytes),
            None if counted < MOST_HOSTS => {
                inner.by_host.insert(target.clone(), bytes);
            }
            None => inner.by_others = inner.by_others.saturating_add(bytes),
        }
        inner.spent(target)?;
        #[expect(clippy::cast_precision_loss, reason = "one piece is far below 2^53 bytes")]
        let amount = bytes as f64;
        Ok(inner.bandwidth.take_back(amount, Instant::now()))
    }
}

impl Inner {
    fn spent(&self, target: &Target) -> Result<(), Reason> {
        if self.bytes > self.limits.bytes.0 {
            return Err(Reason::ByteLimit);
        }
        // One that is not counted by itself is one of the others, or, while there are none, has used nothing.
        let used = self.by_host.get(target).copied().unwrap_or(self.by_others);
        if used > self.limits.bytes_per_host.0 { Err(Reason::HostByteLimit) } else { Ok(()) }
    }
}

/// Why a stream stopped although neither side ended it: inside an `io::Error`.
#[derive(Debug, thiserror::Error)]
#[error("the gateway ended the connection: {0}")]
pub struct Stopped(pub Reason);

/// The box's side of a connection, every byte of it counted and held against the limits.
#[derive(Debug)]
pub struct Metered<S> {
    stream: S,
    flow: Flow,
    meter: Arc<Meter>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> Metered<S> {
    /// Counts what passes `stream`.
    pub fn new(stream: S, flow: Flow, meter: Arc<Meter>) -> Self {
        Self { stream, flow, meter, pause: None }
    }

    /// Waits until the bandwidth that was used is paid for, by whichever connection of the box: what each may carry before it is asked to
    /// wait, any number of new ones would carry.
    fn poll_pause(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            let owed = self.meter.owed();
            if owed.is_zero() {
                return Poll::Ready(());
            }
            self.pause = Some(Box::pin(tokio::time::sleep(owed)));
        }
    }

    fn passed(&mut self, bytes: usize) -> io::Result<()> {
        match self.meter.passed(self.flow.target(), bytes) {
            // Whoever is next waits for it.
            Ok(_) => Ok(()),
            Err(reason) => {
                self.flow.end_by(reason);
                Err(io::Error::other(Stopped(reason)))
            }
        }
    }
}

impl<S: End> End for Metered<S> {
    fn socket(&self) -> Option<&tokio::net::TcpStream> {
        self.stream.socket()
    }

    fn poll_allowance(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_pause(context)
    }

    fn taken(&mut self, bytes: usize) -> io::Result<()> {
        self.flow.add_sent(u64::try_from(bytes).unwrap_or(0));
        self.passed(bytes)
    }

    fn given(&mut self, bytes: usize) -> io::Result<()> {
        self.flow.add_received(u64::try_from(bytes).unwrap_or(0));
        self.passed(bytes)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_pause(context));
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let bytes = buffer.filled().len().saturating_sub(before);
        self.flow.add_sent(u64::try_from(bytes).unwrap_or(0));
        Poll::Ready(self.passed(bytes))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_pause(context));
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.flow.add_received(u64::try_from(written).unwrap_or(0));
        self.passed(written)?;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blastbox_policy::{Bytes, Draft, ThreatLevel};

    fn limits() -> NetworkLimits {
        Draft::at(ThreatLevel::High).network_rules().limits
    }

    fn target(text: &str) -> Target {
        Target::Name(text.parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_limited_in_number_and_rate() {
        let meter = Meter::new(&NetworkLimits { flows: 3, connections_per_second: 5, ..limits() });
        let held: Vec<_> = (0..3).map(|_| meter.connection(&target("a.test")).unwrap()).collect();
        assert_eq!(meter.connection(&target("a.test")).unwrap_err(), Reason::FlowLimit);
        drop(held);
        for _ in 0..2 {
            drop(meter.connection(&target("a.test")).unwrap());
        }
        assert_eq!(meter.connection(&target("a.test")).unwrap_err(), Reason::RateLimit);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(meter.connection(&target("a.test")).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn questions_are_limited_in_rate() {
        let meter = Meter::new(&NetworkLimits { questions_per_second: 3, ..limits() });
        let asked = || (0..10).filter(|_| meter.question().is_ok()).count();
        assert_eq!((asked(), meter.question()), (3, Err(Reason::RateLimit)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(asked(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_limited_for_the_box_and_for_each_host() {
        let meter =
            Meter::new(&NetworkLimits { bytes: Bytes(3000), bytes_per_host: Bytes(2000), ..limits() });
        assert_eq!(meter.passed(&target("a.test"), 2000), Ok(Duration::ZERO));
        assert_eq!(meter.passed(&target("a.test"), 1), Err(Reason::HostByteLimit));
        assert_eq!(meter.connection(&target("a.test")).unwrap_err(), Reason::HostByteLimit);
        assert_eq!(meter.passed(&target("b.test"), 999), Ok(Duration::ZERO));
        assert_eq!(meter.passed(&target("c.test"), 1), Err(Reason::ByteLimit));
    }

    #[tokio::test(start_paused = true)]
    async fn a_further_dial_takes_of_the_rate_and_no_slot() {
        let meter = Meter::new(&NetworkLimits { flows: 1, connections_per_second: 3, ..limits() });
        let _held = meter.connection(&target("a.test")).unwrap();
        let dialled = || (0..10).filter(|_| meter.dial(&target("a.test")).is_ok()).count();
        assert_eq!((dialled(), meter.dial(&target("a.test"))), (2, Err(Reason::RateLimit)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(dialled(), 3);
    }

    /// Where everything is open, a box can reach as many addresses as there are.
    #[tokio::test(start_paused = true)]
    async fn hosts_beyond_those_that_are_counted_share_one_budget() {
        let meter = Meter::new(&NetworkLimits { bytes_per_host: Bytes(2000), ..limits() });
        let host =
            |number: usize| Target::Address(std::net::Ipv6Addr::from(u128::try_from(number).unwrap()).into());
        for number in 0..MOST_HOSTS {
            meter.passed(&host(number), 1).unwrap();
        }
        for number in 0..2000 {
            meter.passed(&host(MOST_HOSTS + number), 1).unwrap();
        }
        assert_eq!(meter.lock().by_host.len(), MOST_HOSTS);
        assert_eq!(meter.passed(&host(MOST_HOSTS), 1), Err(Reason::HostByteLimit));
        let stranger = host(MOST_HOSTS * 2);
        assert_eq!(meter.connection(&stranger).unwrap_err(), Reason::HostByteLimit);
        // Those that were counted first still have what is theirs.
        assert!(meter.passed(&host(0), 1999).is_ok());
        assert_eq!(meter.passed(&host(0), 1), Err(Reason::HostByteLimit));
    }

    #[tokio::test(start_paused = true)]
    async fn bandwidth_is_paid_for_by_waiting() {
        let meter = Meter::new(&NetworkLimits { bandwidth: Bytes(1000), ..limits() });
        assert_eq!(meter.passed(&target("a.test"), 1000), Ok(Duration::ZERO));
        assert_eq!(meter.passed(&target("a.test"), 500), Ok(Duration::from_millis(500)));
    }
}
