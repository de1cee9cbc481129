//! Carrying bytes both ways, unread.
//!
//! What is carried lies in one buffer that all connections share, and in one of a connection's own only while the other side
//! does not take it: a thousand idle connections hold nothing.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use blastbox_wire::egress::{LINK_MTU, Reason};
use tokio::io::{AsyncWrite, ReadBuf};

use crate::end::End;
use crate::flow::{Dialled, Flow};
use crate::limits::Stopped;
use crate::pipes::{OnTheWay, Taken};

/// One piece of what is carried: what one packet to the box holds beneath its headers (IPv6 without options: 40, TCP: 20). A
/// byte more and every piece would be two packets, one of them tiny.
const PIECE: usize = LINK_MTU as usize - 60;
/// Once so much was read and is not taken, by all connections together, pieces are small: thousands of targets that read nothing
/// hold a page each and not a piece.
const CROWDED: usize = 16 * 1024 * 1024;
const SMALL: usize = 4096;
/// Pieces below this are not worth a pipe.
const BULKY: usize = 16 * 1024;
/// Pieces that are carried before anybody else gets a turn.
const TURN: usize = 16;

/// What all connections together have read and nobody has taken.
static KEPT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SHARED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Carries bytes both ways until both sides have said everything, one breaks off, or a limit is met.
pub(crate) async fn relay<S>(mut stream: S, mut target: Dialled, flow: &Flow)
where
    S: End,
{
    if let Err(error) = carry(&mut stream, &mut target.stream, &KEPT).await
        && let Some(Stopped(reason)) = error.get_ref().and_then(|inner| inner.downcast_ref::<Stopped>())
    {
        let reason: Reason = *reason;
        flow.deny(reason);
    }
}

/// `kept` is what all connections together have read and nobody has taken.
async fn carry<A, B>(one: &mut A, other: &mut B, kept: &AtomicUsize) -> io::Result<()>
where
    A: End,
    B: End,
{
    let (mut there, mut back) = (Way::new(kept), Way::new(kept));
    poll_fn(|context| {
        let there = there.poll(context, one, other)?;
        let back = back.poll(context, other, one)?;
        if there.is_ready() && back.is_ready() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

/// One direction.
struct Way<'a> {
    /// What was read and not yet taken.
    left: Vec<u8>,
    state: State,
    /// Whether the last piece was as large as one can be: then the next goes by a pipe, where both ends are sockets.
    bulky: bool,
    on_the_way: OnTheWay,
    kept: &'a AtomicUsize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Its source has said everything.
    Said,
    /// The other side has been told so.
    Over,
}

impl<'a> Way<'a> {
    fn new(kept: &'a AtomicUsize) -> Self {
        Self { left: Vec::new(), state: State::Open, bulky: false, on_the_way: OnTheWay::default(), kept }
    }

    fn poll<R, W>(&mut self, context: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: End,
        W: End,
    {
        for _ in 0..TURN {
            if !self.left.is_empty() {
                let written = write(context, to, &self.left)?;
                self.left.drain(..written);
                self.kept.fetch_sub(written, Ordering::Relaxed);
                if !self.left.is_empty() {
                    return Poll::Pending;
                }
                self.left = Vec::new();
            }
            if !self.on_the_way.is_empty() {
                ready!(self.give(context, to))?;
                continue;
            }
            match self.state {
                State::Over => return Poll::Ready(Ok(())),
                State::Said => {
                    ready!(Pin::new(&mut *to).poll_shutdown(context))?;
                    self.state = State::Over;
                }
                State::Open if self.bulky => ready!(self.one_pipe(context, from, to))?,
                State::Open => ready!(self.one_piece(context, from, to))?,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Takes a piece that does not come into this program; what no pipe takes is read.
    fn one_pipe<R, W>(&mut self, context: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: End,
        W: End,
    {
        ready!(from.poll_allowance(context));
        ready!(to.poll_allowance(context));
        let taken = match (from.socket(), to.socket()) {
            (Some(from), Some(_)) => ready!(self.on_the_way.poll_take(context, from))?,
            _ => Taken::Nothing,
        };
        match taken {
            Taken::Bytes(bytes) => {
                self.bulky = bytes >= BULKY;
                Poll::Ready(from.taken(bytes))
            }
            Taken::Nothing => self.one_piece(context, from, to),
        }
    }

    /// Gives what is on the way.
    fn give<W: End>(&mut self, context: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>> {
        ready!(to.poll_allowance(context));
        let Some(socket) = to.socket() else { return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())) };
        let given = ready!(self.on_the_way.poll_give(context, socket))?;
        Poll::Ready(to.given(given))
    }

    fn one_piece<R, W>(&mut self, context: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: End,
        W: End,
    {
        // Taken and put back: whatever is called in between finds another one.
        let mut shared = SHARED.take();
        shared.resize(PIECE, 0);
        let most = if self.kept.load(Ordering::Relaxed) < CROWDED { PIECE } else { SMALL };
        let piece = shared.get_mut(..most).unwrap_or_default();
        let by_sockets = from.socket().is_some() && to.socket().is_some();
        let carried = match read(context, from, piece) {
            Poll::Ready(Ok(length)) => {
                let bytes = piece.get(..length).unwrap_or_default();
                if bytes.is_empty() {
                    self.state = State::Said;
                }
                self.bulky = by_sockets && bytes.len() >= if self.bulky { BULKY } else { PIECE };
                let written = write(context, to, bytes);
                Poll::Ready(written.map(|written| {
                    self.left.extend_from_slice(bytes.get(written..).unwrap_or_default());
                    self.kept.fetch_add(self.left.len(), Ordering::Relaxed);
                }))
            }
            // What was written may wait for being sent.
            Poll::Pending => match Pin::new(to).poll_flush(context) {
                Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
                _ => Poll::Pending,
            },
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
        };
        SHARED.set(shared);
        carried
    }
}

impl Drop for Way<'_> {
    fn drop(&mut self) {
        self.kept.fetch_sub(self.left.len(), Ordering::Relaxed);
    }
}

/// Reads what is there; how much that was. A socket is read until it says itself that it is empty, and not taken for empty because it gave less
/// than there was room for: a read ends at the mark of urgent data too, and what lies behind it would wait for what comes next.
fn read<R: End>(context: &mut Context<'_>, from: &mut R, piece: &mut [u8]) -> Poll<io::Result<usize>> {
    if from.socket().is_none() {
        let mut piece = ReadBuf::new(piece);
        ready!(Pin::new(from).poll_read(context, &mut piece))?;
        return Poll::Ready(Ok(piece.filled().len()));
    }
    ready!(from.poll_allowance(context));
    while let Some(socket) = from.socket() {
        ready!(socket.poll_read_ready(context))?;
        match socket.try_read(piece) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Poll::Ready(Err(error)),
            Ok(bytes) => return Poll::Ready(from.taken(bytes).map(|()| bytes)),
        }
    }
    Poll::Ready(Ok(0))
}

/// Writes what is taken now; how much that was.
fn write<W: AsyncWrite + Unpin>(context: &mut Context<'_>, to: &mut W, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match Pin::new(&mut *to).poll_write(context, rest)? {
            Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(more) => written += more,
            Poll::Pending => break,
        }
    }
    Ok(written)
}

#[cfg(test)]
#[path = "relay_tests.rs"]
mod tests;
