//! Connections of the box that the kernel carries.
//!
//! The packet that opens one comes over the link like any other, and is kept until the decision has fallen and, for raw TCP, until the
//! target has answered. Put back into the link it reaches an ear: a listening socket in the box's own network namespace. Whatever comes to
//! an ear without having been let in is reset, so that nothing depends on what a box can send to whom.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use blastbox_sys::shortcut::untaken;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_linger, set_socket_oobinline, set_socket_recv_buffer_size, set_socket_send_buffer_size,
    set_tcp_nodelay,
};
use rustix::net::{SocketFlags, accept_with};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Duration, Sleep};

use crate::link;
use crate::netstack::{Ends, LARGE_BUFFER, Link, Room};

/// How long a connection that was let in may take to come: the box's kernel answers at once, or not at all.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing is taken once there is no descriptor left.
const BREATH: Duration = Duration::from_millis(20);
/// How soon, and how often at last, is looked whether a box has heard the end of a connection.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(250);
/// Connections that are taken before anybody else gets a turn.
const TURN: usize = 64;

/// Where connections come in that the kernel carries.
#[derive(Debug)]
pub(crate) struct Inlet {
    ears: Vec<AsyncFd<OwnedFd>>,
    link: Arc<Link>,
    asked: Arc<Mutex<HashMap<Ends, Asked>>>,
    /// What the buffers of all that came may take together.
    buffers: Arc<AtomicUsize>,
}

/// What became of one that has asked.
#[derive(Debug)]
enum Asked {
    /// It waits; `taker` is told when it has come: none before it is let in.
    Waiting { opening: Vec<u8>, taker: Option<oneshot::Sender<Arrived>> },
    /// It has come, and began with this number. What opened it may have been sent twice, and the second be read only now: taken for another
    /// connection, its target would be dialled once more for nobody.
    Came { number: Option<i32> },
}

fn locked(asked: &Mutex<HashMap<Ends, Asked>>) -> MutexGuard<'_, HashMap<Ends, Asked>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inlet {
    /// One with these ears.
    pub(crate) fn new(ears: Vec<OwnedFd>, link: Arc<Link>) -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "sound for a descriptor that is owned; its replacement is unsafe to call"
        )]
        let ears = ears.into_iter().map(AsyncFd::new).collect::<io::Result<_>>()?;
        Ok(Self { ears, link, asked: Arc::default(), buffers: Arc::default() })
    }

    /// Whether the packet only asks again. Of those that wait the newest is what counts: a box may have closed the socket that asked first.
    pub(crate) fn asks_again(&self, ends: &Ends, packet: &[u8]) -> bool {
        match locked(&self.asked).get_mut(ends) {
            None => false,
            Some(Asked::Came { number }) => number.is_some() && *number == link::number(packet),
            Some(Asked::Waiting { opening, taker }) => {
                *opening = packet.to_vec();
                if taker.is_some() {
                    self.link.write_unsummed(opening);
                }
                true
            }
        }
    }

    /// Keeps the packet that opens a connection. Bounded by the connections that may be open, of which it is one.
    pub(crate) fn expect(self: &Arc<Self>, ends: Ends, opening: &[u8]) -> Expected {
        locked(&self.asked).insert(ends, Asked::Waiting { opening: opening.to_vec(), taker: None });
        Expected { inlet: Arc::clone(self), ends, refuse: true }
    }

    /// Takes what comes. Runs for ever; idle while nothing comes.
    pub(crate) async fn tend(&self) {
        let mut ears = self.ears.iter();
        match (ears.next(), ears.next()) {
            (Some(one), Some(other)) => {
                tokio::join!(self.hear(one), self.hear(other));
            }
            (Some(one), None) => self.hear(one).await,
            _ => std::future::pending().await,
        }
    }

    async fn hear(&self, ear: &AsyncFd<OwnedFd>) {
        loop {
            let Ok(mut ready) = ear.readable().await else { return std::future::pending().await };
            for _ in 0..TURN {
                match accept_with(ear.get_ref(), SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                    Ok(taken) => self.take(taken),
                    Err(Errno::AGAIN) => {
                        ready.clear_ready();
                        break;
                    }
                    // It was over before it was taken.
                    Err(Errno::CONNABORTED | Errno::INTR) => {}
                    Err(_) => {
                        tokio::time::sleep(BREATH).await;
                        break;
                    }
                }
            }
            drop(ready);
            tokio::task::yield_now().await;
        }
    }

    fn take(&self, taken: OwnedFd) {
        // Closed, it is reset, until somebody says otherwise. What cannot even be asked who it is, is closed.
        let Ok(mut arrived) = Arrived::new(taken, Room::take(&self.buffers)) else { return };
        let Some(ends) = arrived.ends() else { return };
        let mut asked = locked(&self.asked);
        let Some(Asked::Waiting { opening, taker }) = asked.get_mut(&ends) else { return };
        let (number, taker) = (link::number(opening), taker.take());
        asked.insert(ends, Asked::Came { number });
        drop(asked);
        arrived.came = Some(Box::new(Came { asked: Arc::clone(&self.asked), ends, number }));
        if let Some(taker) = taker {
            // Whoever does not wait any more drops it, and it is reset.
            taker.send(arrived).ok();
        }
    }
}

/// That a connection has come, for as long as it is there.
#[derive(Debug)]
struct Came {
    asked: Arc<Mutex<HashMap<Ends, Asked>>>,
    ends: Ends,
    number: Option<i32>,
}

impl Drop for Came {
    fn drop(&mut self) {
        let mut asked = locked(&self.asked);
        // A box may have opened another between the same ends meanwhile.
        if matches!(asked.get(&self.ends), Some(Asked::Came { number }) if *number == self.number) {
            asked.remove(&self.ends);
        }
    }
}

/// A connection that has asked and is not let in. Dropped, it is refused.
#[derive(Debug)]
pub(crate) struct Expected {
    inlet: Arc<Inlet>,
    ends: Ends,
    refuse: bool,
}

impl Expected {
    /// Lets it in. `None`: the box has not waited for it.
    pub(crate) async fn let_in(mut self) -> Option<Arrived> {
        let (taker, arrival) = oneshot::channel();
        match locked(&self.inlet.asked).get_mut(&self.ends) {
            Some(Asked::Waiting { opening, taker: to_tell }) => {
                *to_tell = Some(taker);
                self.inlet.link.write_unsummed(opening);
            }
            _ => return None,
        }
        let arrived = tokio::time::timeout(PATIENCE, arrival).await.ok()?.ok();
        self.refuse = arrived.is_none();
        arrived
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        if !self.refuse {
            return;
        }
        let mut asked = locked(&self.inlet.asked);
        let Some(Asked::Waiting { opening, .. }) = asked.get(&self.ends) else { return };
        if let Some(answer) = link::reset(opening) {
            self.inlet.link.write(&answer);
        }
        asked.remove(&self.ends);
    }
}

/// The box's side of a connection that the kernel carries. Dropped before [`AsyncWrite::poll_shutdown`], it is reset.
#[derive(Debug)]
pub struct Arrived {
    stream: TcpStream,
    /// Since its end was said: when to look again whether that was heard, and how long to wait then.
    ending: Option<(Pin<Box<Sleep>>, Duration)>,
    came: Option<Box<Came>>,
    _room: Room,
}

impl Arrived {
    fn new(taken: OwnedFd, room: Room) -> io::Result<Self> {
        set_socket_linger(&taken, Some(Duration::ZERO))?;
        set_tcp_nodelay(&taken, true)?;
        // Urgent bytes are carried like any other, in their place; else the kernel would take them out.
        set_socket_oobinline(&taken, true)?;
        // The largest is what every socket there may have; the kernel doubles what it is told.
        if room.size() < LARGE_BUFFER {
            set_socket_recv_buffer_size(&taken, room.size() / 2)?;
            set_socket_send_buffer_size(&taken, room.size() / 2)?;
        }
        Ok(Self { stream: TcpStream::from_std(taken.into())?, ending: None, came: None, _room: room })
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether nothing is left to be taken, or nobody is there who could.
    fn is_heard(&self) -> io::Result<bool> {
        Ok(untaken(self.stream.as_fd())? == 0 || self.stream.peer_addr().is_err())
    }

    fn ends(&self) -> Option<Ends> {
        let plain = |address: SocketAddr| SocketAddr::new(address.ip(), address.port());
        let (from, to) = (self.stream.peer_addr().ok()?, self.stream.local_addr().ok()?);
        Some(Ends { from: plain(from), to: plain(to) })
    }
}

impl AsyncRead for Arrived {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Arrived {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Waits until the box's kernel has taken everything: what it has not taken would stay with ours, counted by nobody, for as long as
    /// the box does not read. Whoever does not wait resets it.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ending.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        while !self.is_heard()? {
            let (sleep, wait) =
                self.ending.get_or_insert_with(|| (Box::pin(tokio::time::sleep(FIRST_LOOK)), FIRST_LOOK));
            ready!(sleep.as_mut().poll(context));
            *wait = (*wait * 2).min(LAST_LOOK);
            let next = tokio::time::Instant::now() + *wait;
            sleep.as_mut().reset(next);
        }
        set_socket_linger(self.stream.as_fd(), None)?;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
