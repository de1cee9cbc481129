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
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::flow::{Dialled, Flow};
use crate::limits::Stopped;

/// One piece of what is carried: what one packet to the box holds beneath its headers (IPv6 without options: 40, TCP: 20). A
/// byte more and every piece would be two packets, one of them tiny.
const PIECE: usize = LINK_MTU as usize - 60;
/// Once so much was read and is not taken, by all connections together, pieces are small: thousands of targets that read nothing
/// hold a page each and not a piece.
const CROWDED: usize = 16 * 1024 * 1024;
const SMALL: usize = 4096;
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
    S: AsyncRead + AsyncWrite + Unpin,
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
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
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
    const fn new(kept: &'a AtomicUsize) -> Self {
        Self { left: Vec::new(), state: State::Open, kept }
    }

    fn poll<R, W>(&mut self, context: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
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
            match self.state {
                State::Over => return Poll::Ready(Ok(())),
                State::Said => {
                    ready!(Pin::new(&mut *to).poll_shutdown(context))?;
                    self.state = State::Over;
                }
                State::Open => ready!(self.one_piece(context, from, to))?,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn one_piece<R, W>(&mut self, context: &mut Context<'_>, from: &mut R, to: &mut W) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        // Taken and put back: whatever is called in between finds another one.
        let mut shared = SHARED.take();
        shared.resize(PIECE, 0);
        let most = if self.kept.load(Ordering::Relaxed) < CROWDED { PIECE } else { SMALL };
        let mut piece = ReadBuf::new(shared.get_mut(..most).unwrap_or_default());
        let read = Pin::new(from).poll_read(context, &mut piece);
        let carried = match read {
            Poll::Ready(Ok(())) => {
                let bytes = piece.filled();
                if bytes.is_empty() {
                    self.state = State::Said;
                }
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
            failed => failed,
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
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    /// More than everybody's buffers hold, so that each side has to wait for the other.
    #[tokio::test]
    async fn everything_arrives_in_both_directions_and_each_end_is_passed_on() {
        let ((near, mut one), (mut other, far)) = (duplex(1000), duplex(3000));
        let carried = tokio::spawn(async move { carry(&mut one, &mut other, &KEPT).await });
        let talk = async |stream: tokio::io::DuplexStream, seed: u8| {
            let (mut from, mut to) = tokio::io::split(stream);
            let sent: Vec<u8> = (0..500_000_u32).map(|at| (at % 251) as u8 ^ seed).collect();
            let (copy, mut heard) = (sent.clone(), Vec::new());
            let write = async {
                to.write_all(&copy).await?;
                to.shutdown().await
            };
            let (wrote, read) = tokio::join!(write, from.read_to_end(&mut heard));
            wrote.unwrap();
            read.unwrap();
            (sent, heard)
        };
        let (near, far) = tokio::join!(talk(near, 1), talk(far, 2));
        assert!(near.0 == far.1 && far.0 == near.1);
        carried.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn one_side_may_end_long_before_the_other() {
        let ((mut near, mut one), (mut other, mut far)) = (duplex(64), duplex(64));
        let carried = tokio::spawn(async move { carry(&mut one, &mut other, &KEPT).await });
        near.write_all(b"question").await.unwrap();
        near.shutdown().await.unwrap();
        let mut heard = Vec::new();
        far.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"question");
        far.write_all(b"answer").await.unwrap();
        drop(far);
        heard.clear();
        near.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"answer");
        carried.await.unwrap().unwrap();
    }

    /// 64 bytes in front of the target, as many in hand and as many in front of the carrier: nobody reads any more.
    #[tokio::test]
    async fn what_has_to_end_does_although_the_target_takes_nothing() {
        let ((mut near, mut one), (mut other, far)) = (duplex(64), duplex(64));
        let stop = std::sync::Arc::new(crate::flow::Stop::default());
        let raised = std::sync::Arc::clone(&stop);
        // Its own count: the others' tests run beside it.
        static KEPT_HERE: AtomicUsize = AtomicUsize::new(0);
        let carried = async move { stop.cut(carry(&mut one, &mut other, &KEPT_HERE)).await.is_none() };
        let carried = tokio::spawn(carried);
        near.write_all(&[7; 192]).await.unwrap();
        assert_eq!(KEPT_HERE.load(Ordering::Relaxed), 64, "what it holds in hand");
        raised.raise();
        assert!(carried.await.unwrap());
        assert_eq!(KEPT_HERE.load(Ordering::Relaxed), 0, "nothing is kept for it");
        assert_eq!(near.write(b"more").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        drop(far);
        assert!(raised.cut(std::future::pending::<()>()).await.is_none(), "whoever comes later ends too");
    }

    #[tokio::test]
    async fn whoever_breaks_off_ends_both_directions() {
        let ((mut near, mut one), (mut other, far)) = (duplex(64), duplex(64));
        let carried = tokio::spawn(async move { carry(&mut one, &mut other, &KEPT).await });
        drop(far);
        near.write_all(b"nobody is there").await.unwrap();
        assert_eq!(carried.await.unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
