//! TCP on the box's side: packets become streams.
//!
//! smoltcp looks through all sockets of a set for every packet, and through all of them again for what to send. So each
//! connection has an interface and a set of its own, with one socket in it, and a packet finds its connection in a
//! table: a thousand idle connections cost a busy one nothing.

mod conn;
mod link;
mod stream;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use smoltcp::time::Instant as StackInstant;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant};

use conn::Conn;
pub use link::{Link, MARGIN};
pub use stream::Stream;

/// Connections in the table, those that only wait for their last packet included, for each that the policy allows.
const TABLE_FACTOR: usize = 2;
/// Memory for buffers of all connections together. Whoever comes gets a share of what is left of it, and small ones when nothing is.
const BUFFER_BUDGET: usize = 48 * 1024 * 1024;
const SHARE: usize = 32;
/// Sixteen packets of the largest size: with four, both sides wait for each other most of the time.
pub(crate) const LARGE_BUFFER: usize = blastbox_sys::shortcut::ROOM as usize;
const SMALL_BUFFER: usize = 16 * 1024;
/// How often connections are looked after while any of them waits for time to pass.
const TICK: Duration = Duration::from_millis(20);

/// Both ends of a connection, the box's first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ends {
    /// The box's end.
    pub from: SocketAddr,
    /// The other end, as the box sees it.
    pub to: SocketAddr,
}

/// All connections of the box.
#[derive(Debug)]
pub struct Netstack {
    link: Arc<Link>,
    table: Mutex<HashMap<Ends, Arc<Conn>>>,
    most: AtomicUsize,
    buffers: Arc<AtomicUsize>,
    clock: Arc<Clock>,
    seeds: Mutex<Seeds>,
}

/// The stack's own time, and whether anything waits for it.
#[derive(Debug)]
struct Clock {
    begun: Instant,
    waiting: AtomicBool,
    wake: Notify,
}

impl Clock {
    fn now(&self) -> StackInstant {
        let micros = i64::try_from(self.begun.elapsed().as_micros()).unwrap_or(i64::MAX);
        StackInstant::from_micros(micros)
    }

    /// Something waits for time to pass from now on.
    fn wait(&self) {
        if !self.waiting.swap(true, Ordering::Relaxed) {
            self.wake.notify_one();
        }
    }
}

/// Random numbers for first sequence numbers, fetched many at a time.
#[derive(Debug, Default)]
struct Seeds(Vec<u8>);

impl Seeds {
    fn next(&mut self) -> io::Result<u64> {
        if self.0.is_empty() {
            self.0.resize(512, 0);
            rustix::rand::getrandom(self.0.as_mut_slice(), rustix::rand::GetRandomFlags::empty())?;
        }
        let at = self.0.len().saturating_sub(8);
        let bytes = self.0.split_off(at);
        Ok(u64::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    }
}

/// Room that a connection's buffers take, the gateway's own or the kernel's. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Room {
    used: Arc<AtomicUsize>,
    size: usize,
}

impl Room {
    pub(crate) fn take(used: &Arc<AtomicUsize>) -> Self {
        let share = BUFFER_BUDGET.saturating_sub(used.load(Ordering::Relaxed)) / SHARE;
        let size = share.clamp(SMALL_BUFFER, LARGE_BUFFER);
        used.fetch_add(2 * size, Ordering::Relaxed);
        Self { used: Arc::clone(used), size }
    }

    /// How much in each direction.
    pub(crate) fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.used.fetch_sub(2 * self.size, Ordering::Relaxed);
    }
}

/// When the handshake is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handshake {
    /// At once.
    Now,
    /// When [`Stream::accept`] is called: the target may still refuse.
    Held,
}

impl Netstack {
    /// A stack for at most `flows` connections at a time.
    #[must_use]
    pub fn new(link: Arc<Link>, flows: usize) -> Self {
        Self {
            link,
            table: Mutex::default(),
            most: AtomicUsize::new(flows.saturating_mul(TABLE_FACTOR)),
            buffers: Arc::default(),
            clock: Arc::new(Clock {
                begun: Instant::now(),
                waiting: AtomicBool::new(false),
                wake: Notify::new(),
            }),
            seeds: Mutex::default(),
        }
    }

    /// Takes another limit.
    pub fn limit(&self, flows: usize) {
        self.most.store(flows.saturating_mul(TABLE_FACTOR), Ordering::Relaxed);
    }

    fn table(&self) -> std::sync::MutexGuard<'_, HashMap<Ends, Arc<Conn>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands a packet to its connection. `false`: there is none.
    pub fn deliver(&self, ends: &Ends, packet: &[u8]) -> bool {
        let Some(conn) = self.table().get(ends).cloned() else { return false };
        if conn.deliver(packet, &self.link, &self.clock) == conn::State::Over {
            self.table().remove(ends);
        }
        true
    }

    /// Whether there is no room for one more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.table().len() >= self.most.load(Ordering::Relaxed)
    }

    /// Begins a connection with the packet that opens it.
    pub fn open(&self, ends: Ends, packet: &[u8], handshake: Handshake) -> io::Result<Stream> {
        let seed = self.seeds.lock().unwrap_or_else(PoisonError::into_inner).next()?;
        let room = Room::take(&self.buffers);
        let conn = Arc::new(Conn::new(&ends, seed, room, handshake, &self.link, self.clock.now())?);
        self.table().insert(ends, Arc::clone(&conn));
        conn.deliver(packet, &self.link, &self.clock);
        Ok(Stream::new(conn, Arc::clone(&self.link), Arc::clone(&self.clock)))
    }

    /// Sends again what was lost, and forgets what is over. Runs for ever; idle while nothing waits.
    pub async fn tend(&self) {
        loop {
            if !self.clock.waiting.load(Ordering::Relaxed) {
                self.clock.wake.notified().await;
            }
            tokio::time::sleep(TICK).await;
            // Before looking, so that what comes in the meantime is not forgotten.
            self.clock.waiting.store(false, Ordering::Relaxed);
            let all: Vec<(Ends, Arc<Conn>)> =
                self.table().iter().map(|(ends, conn)| (*ends, Arc::clone(conn))).collect();
            for (ends, conn) in all {
                if conn.tend(&self.link, &self.clock) == conn::State::Over {
                    self.table().remove(&ends);
                }
            }
        }
    }
}
