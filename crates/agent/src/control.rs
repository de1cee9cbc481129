//! Frames to and from the host, over a stream that is never waited for.
//!
//! Output is queued up to a bound. Above it commands are no longer read, so a host that reads slowly slows down what
//! runs in the box and nothing else; far above it frames of the host are no longer read either.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_sys::channel;
use blastbox_wire::agent::{AgentFrame, FileSay, FrameError, HostFrame};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;

/// Queued bytes above which no command is read.
const FULL: usize = 256 * 1024;
/// Queued bytes above which no frame of the host is read, since most frames make the queue longer.
const OVERFULL: usize = 512 * 1024;
/// Buffers begin small, because most commands say little and an idle box should cost little.
const SMALL: usize = 4 * 1024;
const LARGE: usize = 64 * 1024;
/// What stands before the bytes in an `Output` frame.
const HEAD: usize = 10;
/// What stands before the bytes in a frame with a piece of a file.
const FILE_HEAD: usize = 9;

/// What a look at the stream brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Received {
    /// Some bytes, or none this time.
    Bytes,
    /// The host has closed its end.
    End,
}

/// The stream to the host, with what waits on both sides of it.
#[derive(Debug)]
pub(crate) struct Control {
    stream: OwnedFd,
    input: Vec<u8>,
    /// How much of `input` has been read as frames.
    parsed: usize,
    /// How much to ask for at once.
    gulp: usize,
    /// Memory for the queue. Its length is what was ever needed, not what is queued: output is read right into it.
    output: Vec<u8>,
    /// The queue is `output[sent..queued]`.
    sent: usize,
    queued: usize,
    /// Another host may come after this one.
    heritable: bool,
    /// Where in `input` another host began.
    cut: Option<usize>,
}

impl Control {
    pub(crate) fn new(stream: OwnedFd) -> Self {
        // Until the host has said otherwise, which may be read only when another one is there: where that can be at all.
        let heritable = rustix::net::sockopt::socket_type(&stream).is_ok();
        Self {
            stream,
            input: Vec::new(),
            parsed: 0,
            gulp: SMALL,
            output: Vec::new(),
            sent: 0,
            queued: 0,
            heritable,
            cut: None,
        }
    }

    /// No other host comes after this one.
    pub(crate) fn expect_no_heirs(&mut self) {
        self.heritable = false;
    }

    /// Whether more output may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting() < FULL
    }

    /// Whether the stream has taken everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Whether something was received that is not read as a frame yet.
    pub(crate) fn has_more(&self) -> bool {
        self.parsed < self.input.len()
    }

    fn waiting(&self) -> usize {
        self.queued.saturating_sub(self.sent)
    }

    /// What to wait for.
    pub(crate) fn interest(&self) -> EventFlags {
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, self.waiting() < OVERFULL);
        interest.set(EventFlags::OUT, self.waiting() > 0);
        interest
    }

    /// Queues a frame.
    pub(crate) fn send(&mut self, frame: &AgentFrame<'_>) {
        let bytes = frame.encode();
        self.space(bytes.len()).copy_from_slice(&bytes);
        self.queued = self.queued.saturating_add(bytes.len());
    }

    /// Reads at most `most` bytes of a command's output and queues them as a frame. 0: there will be no more.
    pub(crate) fn send_output(
        &mut self,
        exec: u32,
        stream: u8,
        from: BorrowedFd<'_>,
        most: usize,
    ) -> Result<usize, Errno> {
        let space = self.space(most.saturating_add(HEAD));
        let Some((head, body)) = space.split_first_chunk_mut::<HEAD>() else {
            return Err(Errno::NOBUFS);
        };
        let got = rustix::io::retry_on_intr(|| rustix::io::read(from, &mut *body))?;
        if got > 0 {
            *head = AgentFrame::output_head(exec, stream, got);
            self.queued = self.queued.saturating_add(got).saturating_add(HEAD);
        }
        Ok(got)
    }

    /// Queues bytes of a file that `fill` puts right behind the frame's head, at most `most`. Returns how many.
    pub(crate) fn send_chunk(
        &mut self,
        op: u32,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let space = self.space(most.saturating_add(FILE_HEAD));
        let Some((head, body)) = space.split_first_chunk_mut::<FILE_HEAD>() else {
            return Err(Errno::NOBUFS);
        };
        let got = fill(body)?.min(body.len());
        if got > 0 {
            *head = FileSay::chunk_head(op, got);
            self.queued = self.queued.saturating_add(got).saturating_add(FILE_HEAD);
        }
        Ok(got)
    }

    /// Memory behind the queue.
    fn space(&mut self, length: usize) -> &mut [u8] {
        if self.waiting() == 0 {
            (self.sent, self.queued) = (0, 0);
        }
        if self.queued.saturating_add(length) > self.output.len() {
            self.output.copy_within(self.sent..self.queued, 0);
            (self.sent, self.queued) = (0, self.waiting());
            let needed = self.queued.saturating_add(length).next_multiple_of(SMALL);
            if needed > self.output.len() {
                self.output.resize(needed, 0);
            }
        }
        let end = self.queued.saturating_add(length);
        self.output.get_mut(self.queued..end).unwrap_or_default()
    }

    /// Sends what the stream takes now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(waiting @ [_, ..]) = self.output.get(self.sent..self.queued) {
            match rustix::io::retry_on_intr(|| rustix::io::write(&self.stream, waiting)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(done) => self.sent = self.sent.saturating_add(done),
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Reads once.
    pub(crate) fn receive(&mut self) -> io::Result<Received> {
        self.input.drain(..self.parsed);
        self.parsed = 0;
        self.input.reserve(self.gulp);
        let room = self.input.capacity().saturating_sub(self.input.len());
        if self.heritable {
            return self.receive_marked(room);
        }
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.stream, spare_capacity(&mut self.input))) {
            Ok(0) => Ok(Received::End),
            Ok(got) => {
                self.gulp = if got == room { LARGE } else { self.gulp };
                Ok(Received::Bytes)
            }
            Err(Errno::AGAIN) => Ok(Received::Bytes),
            // The host's end is gone, and with it what it had not read.
            Err(Errno::CONNRESET) => Ok(Received::End),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The same, with an eye for the byte with which another host begins. The kernel ends a read behind a descriptor, so that
    /// it is the last one of what was read.
    fn receive_marked(&mut self, room: usize) -> io::Result<Received> {
        let before = self.input.len();
        self.input.resize(before.saturating_add(room), 0);
        let received = channel::receive(&self.stream, self.input.get_mut(before..).unwrap_or_default());
        let (got, marked, ended) = match received {
            Ok(Some((got, descriptors))) => (got, !descriptors.is_empty(), Received::Bytes),
            Ok(None) => (0, false, Received::End),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => (0, false, Received::Bytes),
                io::ErrorKind::ConnectionReset => (0, false, Received::End),
                _ => return Err(error),
            },
        };
        self.input.truncate(before.saturating_add(got));
        if marked {
            self.cut = self.input.len().checked_sub(1);
        }
        self.gulp = if got == room { LARGE } else { self.gulp };
        Ok(ended)
    }

    /// The next whole frame among the bytes received. What another host found half said was never said.
    pub(crate) fn next(&mut self) -> Result<Option<HostFrame>, FrameError> {
        let end = self.cut.unwrap_or(self.input.len());
        let rest = self.input.get(self.parsed..end).unwrap_or_default();
        let Some((frame, taken)) = HostFrame::parse(rest)? else {
            if let Some(cut) = self.cut.take() {
                self.parsed = cut.saturating_add(1);
            }
            return Ok(None);
        };
        self.parsed = self.parsed.saturating_add(taken);
        Ok(Some(frame))
    }

    /// Lets go of memory that an idle box does not need.
    pub(crate) fn relax(&mut self) {
        if self.waiting() == 0 && self.output.len() > SMALL {
            self.output = Vec::new();
            (self.sent, self.queued) = (0, 0);
        }
        if self.input.len() == self.parsed && self.input.capacity() > SMALL {
            self.input = Vec::new();
            (self.parsed, self.gulp) = (0, SMALL);
        }
    }
}

impl AsFd for Control {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
