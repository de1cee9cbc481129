//! The box's side of a connection, whoever carries it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::end::End;
use crate::inlet::{Arrived, Expected};
use crate::netstack::Stream;

/// A connection that was not let in yet. Dropped, it is refused.
#[derive(Debug)]
pub(crate) enum Asking {
    /// The gateway carries its packets.
    Packets(Stream),
    /// The kernel is to carry it.
    Kernel(Expected),
}

impl Asking {
    /// Lets it in. `None`: the box has not waited for it.
    pub(crate) async fn accept(self) -> Option<Side> {
        match self {
            Self::Packets(stream) => {
                stream.accept();
                Some(Side::Packets(stream))
            }
            Self::Kernel(expected) => Some(Side::Kernel(expected.let_in().await?)),
        }
    }
}

/// The box's side of a connection. Dropped before [`AsyncWrite::poll_shutdown`], it is reset.
#[derive(Debug)]
pub enum Side {
    /// The gateway carries its packets.
    Packets(Stream),
    /// The kernel carries it.
    Kernel(Arrived),
}

impl End for Side {
    fn socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Packets(_) => None,
            Self::Kernel(stream) => Some(stream.socket()),
        }
    }
}

impl AsyncRead for Side {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Packets(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Kernel(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Side {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Packets(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Kernel(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Packets(stream) => Pin::new(stream).poll_flush(context),
            Self::Kernel(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Packets(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Kernel(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
