//! Bytes that go from one socket of the kernel to another without being copied: through a pipe that holds the pages themselves.
//!
//! A pipe belongs to a connection only while there is something in it. A thousand idle connections hold none.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::{fmt, io};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::Interest;
use tokio::net::TcpStream;

/// What one pipe holds, and so one piece.
pub(crate) const ROOM: usize = 256 * 1024;
/// Pipes of a gateway at the same time: whoever finds none is carried by copies. They hold pages of the kernel for targets that read nothing:
/// at worst 32 KiB for each page of room, 2 MiB a pipe.
const MOST: usize = 16;
/// Pipes that are kept for whoever comes next.
const SPARE: usize = 4;

static OPEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static POOL: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
}

/// An empty pipe.
struct Pipe {
    from: OwnedFd,
    to: OwnedFd,
}

impl Pipe {
    fn take() -> Option<Self> {
        if let Some(pipe) = POOL.with_borrow_mut(Vec::pop) {
            return Some(pipe);
        }
        if OPEN.fetch_add(1, Ordering::Relaxed) >= MOST {
            OPEN.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let Ok((from, to)) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK) else {
            OPEN.fetch_sub(1, Ordering::Relaxed);
            return None;
        };
        // Where a user has used up his share, the pipe stays small; it is a pipe all the same.
        fcntl_setpipe_size(&to, ROOM).ok();
        Some(Self { from, to })
    }

    fn give_back(self) {
        POOL.with_borrow_mut(|pool| {
            if pool.len() < SPARE {
                pool.push(self);
            }
        });
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Bytes on their way, and the pipe that they are in.
#[derive(Default)]
pub(crate) struct OnTheWay {
    pipe: Option<Pipe>,
    bytes: usize,
}

impl fmt::Debug for OnTheWay {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OnTheWay").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// What came of taking a piece.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// So many bytes; never none.
    Bytes(usize),
    /// There is no pipe, or nothing that a pipe can take. At the mark of urgent data that does not mean that there is nothing, nor, once
    /// the sender has said everything, that this was all: only whoever reads knows.
    Nothing,
}

impl OnTheWay {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Takes what is there; nothing may be on the way.
    pub(crate) fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        from: &TcpStream,
    ) -> Poll<io::Result<Taken>> {
        ready!(from.poll_read_ready(context))?;
        let Some(pipe) = self.pipe.take().or_else(Pipe::take) else {
            return Poll::Ready(Ok(Taken::Nothing));
        };
        // Not by `try_io`, which would take the socket for empty: that is for whoever reads to say.
        match splice(from, None, &pipe.to, None, ROOM, how()) {
            Ok(0) | Err(Errno::AGAIN) => pipe.give_back(),
            Ok(bytes) => {
                self.pipe = Some(pipe);
                self.bytes = bytes;
                return Poll::Ready(Ok(Taken::Bytes(bytes)));
            }
            Err(error) => return Poll::Ready(Err(error.into())),
        }
        Poll::Ready(Ok(Taken::Nothing))
    }

    /// Gives some of what is on the way to whom it is for; how much that was.
    pub(crate) fn poll_give(&mut self, context: &mut Context<'_>, to: &TcpStream) -> Poll<io::Result<usize>> {
        let Some(pipe) = &self.pipe else { return Poll::Ready(Ok(0)) };
        loop {
            ready!(to.poll_write_ready(context))?;
            let all = self.bytes;
            match to.try_io(Interest::WRITABLE, || Ok(splice(&pipe.from, None, to, None, all, how())?)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(bytes) => {
                    self.bytes = self.bytes.saturating_sub(bytes);
                    if self.bytes == 0
                        && let Some(pipe) = self.pipe.take()
                    {
                        pipe.give_back();
                    }
                    return Poll::Ready(Ok(bytes));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

fn how() -> SpliceFlags {
    SpliceFlags::MOVE | SpliceFlags::NONBLOCK
}
