//! One end of what is carried unread.

use std::io;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// One end of a connection whose bytes are carried unread: a stream, and perhaps a socket that bytes can go to and come from past this program.
/// Those are counted here, where a stream counts its own.
pub(crate) trait End: AsyncRead + AsyncWrite + Unpin {
    /// The socket, where all that is still to come comes out of it.
    fn socket(&self) -> Option<&TcpStream>;

    /// Waits until more may pass.
    fn poll_allowance(&mut self, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Bytes were taken from the socket.
    fn taken(&mut self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    /// Bytes were given to the socket.
    fn given(&mut self, _bytes: usize) -> io::Result<()> {
        Ok(())
    }
}

impl End for TcpStream {
    fn socket(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

#[cfg(test)]
impl End for tokio::io::DuplexStream {
    fn socket(&self) -> Option<&TcpStream> {
        None
    }
}
