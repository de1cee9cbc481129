//! Frames to and from the host, over a stream that is never waited for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_wire::agent::{AgentFrame, FrameError, HostFrame};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

/// Queued bytes above which nothing of a guest is carried.
const FULL: usize = 256 * 1024;
/// Queued bytes above which no frame of the host is read, since most frames make the queue longer.
const OVERFULL: usize = 1024 * 1024;
/// How much is read at once.
const GULP: usize = 64 * 1024;

/// What a look at the stream brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// All that there was.
    All,
    /// As much as was taken: there may be more.
    Much,
    /// The other side is gone.
    End,
}

/// The stream to the host, with what waits on both sides of it.
#[derive(Debug)]
pub(crate) struct Control {
    stream: OwnedFd,
    input: Vec<u8>,
    parsed: usize,
    output: Vec<u8>,
    sent: usize,
}

impl Control {
    pub(crate) fn new(stream: OwnedFd) -> Self {
        Self { stream, input: Vec::new(), parsed: 0, output: Vec::new(), sent: 0 }
    }

    fn waiting(&self) -> usize {
        self.output.len().saturating_sub(self.sent)
    }

    /// Whether more of a guest may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting() < FULL
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    pub(crate) fn interest(&self) -> EventFlags {
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, self.waiting() < OVERFULL);
        interest.set(EventFlags::OUT, self.waiting() > 0);
        interest
    }

    /// Queues a frame.
    pub(crate) fn send(&mut self, frame: &AgentFrame<'_>) {
        self.output.extend_from_slice(&frame.encode());
    }

    /// Sends what the stream takes now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(waiting @ [_, ..]) = self.output.get(self.sent..) {
            match rustix::io::retry_on_intr(|| rustix::io::write(&self.stream, waiting)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(done) => self.sent = self.sent.saturating_add(done),
                Err(Errno::AGAIN) => {
                    // What was sent goes, so that the queue is as long as what waits.
                    self.output.drain(..self.sent);
                    self.sent = 0;
                    return Ok(());
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        self.output.clear();
        self.output.shrink_to(GULP);
        self.sent = 0;
        Ok(())
    }

    /// Reads once.
    pub(crate) fn receive(&mut self) -> io::Result<Received> {
        self.input.drain(..self.parsed);
        self.parsed = 0;
        self.input.reserve(GULP);
        let room = self.input.capacity().saturating_sub(self.input.len());
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.stream, spare_capacity(&mut self.input))) {
            Ok(0) | Err(Errno::CONNRESET) => Ok(Received::End),
            Ok(count) if count >= room => Ok(Received::Much),
            Ok(_) | Err(Errno::AGAIN) => Ok(Received::All),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The next whole frame among the bytes received.
    pub(crate) fn next(&mut self) -> Result<Option<HostFrame>, FrameError> {
        let rest = self.input.get(self.parsed..).unwrap_or_default();
        let Some((frame, taken)) = HostFrame::parse(rest)? else { return Ok(None) };
        self.parsed = self.parsed.saturating_add(taken);
        Ok(Some(frame))
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
