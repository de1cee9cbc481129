//! The box's side of a connection as a stream of bytes.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::conn::Conn;
use super::{Clock, Link};

/// The box's side of a connection. Dropped before [`AsyncWrite::poll_shutdown`], it is reset.
#[derive(Debug)]
pub struct Stream {
    conn: Arc<Conn>,
    link: Arc<Link>,
    clock: Arc<Clock>,
    finished: bool,
}

impl Stream {
    pub(super) fn new(conn: Arc<Conn>, link: Arc<Link>, clock: Arc<Clock>) -> Self {
        Self { conn, link, clock, finished: false }
    }

    /// Finishes a handshake that was held.
    pub fn accept(&self) {
        self.conn.accept(&self.link, &self.clock);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.conn.poll_read(context, buffer, &self.link, &self.clock)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.conn.poll_write(context, bytes, &self.link, &self.clock)
    }

    /// What was written is on its way already.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.finished {
            self.finished = true;
            self.conn.finish(&self.link, &self.clock);
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.conn.leave(self.finished, &self.link, &self.clock);
    }
}
