//! A stream whose requests are looked at by [`Framing`] before hyper sees them.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::framing::{Framing, Violation};

/// A stream of HTTP/1 requests.
#[derive(Debug)]
pub(super) struct Guarded<S> {
    stream: S,
    framing: Framing,
    violation: Option<Violation>,
    /// Set when the connection has become a WebSocket: what follows are no requests.
    open: Arc<AtomicBool>,
}

impl<S> Guarded<S> {
    pub(super) fn new(stream: S, open: Arc<AtomicBool>) -> Self {
        Self { stream, framing: Framing::default(), violation: None, open }
    }

    /// The stream, and why reading ended if it was for the guest's fault.
    pub(super) fn into_parts(self) -> (S, Option<Violation>) {
        (self.stream, self.violation)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = &mut *self;
        if let Some(violation) = me.violation {
            return Poll::Ready(Err(refused(violation)));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut me.stream).poll_read(cx, buf))?;
        if me.open.load(Ordering::Acquire) {
            return Poll::Ready(Ok(()));
        }
        let fresh = buf.filled().get(before..).unwrap_or_default();
        if let Err(violation) = me.framing.feed(fresh) {
            // Not one byte of it goes on, also not the part that was still good.
            buf.set_filled(before);
            me.violation = Some(violation);
            return Poll::Ready(Err(refused(violation)));
        }
        Poll::Ready(Ok(()))
    }
}

fn refused(violation: Violation) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, violation)
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.violation.is_some() {
            // hyper has nothing to say to it, but we have.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
