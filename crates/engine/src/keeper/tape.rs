//! What a command printed, on a ring: replayed to whoever comes late, then live. Any number of readers.
//!
//! A place on the tape is a number: 0 is before everything, 1 after the start, 1 + n after n bytes of output, and the
//! end is one further than all output. Replay from any place is therefore exact, whatever pieces the output came in.
//!
//! A command is begun before anybody can read its tape, so the tape waits a while for its first reader: a program that has
//! filled it waits too. After that it is written whether anybody reads it or not, so that no program stalls for want of a
//! reader. A reader that is slower than the program loses the oldest bytes and is told how many; one that must lose none
//! asks for [`TapeReader::hold_back`], and then the program waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;
use tokio::sync::Notify;

use self::ring::Ring;
use super::cards::ExecEnded;
use crate::outlet::Stream;

mod ring;

/// Bytes that a tape keeps, with what keeping them costs.
pub(crate) const RING: usize = 1024 * 1024;

/// Something on a tape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TapeEvent {
    /// The command runs, under this process id inside the box.
    Started {
        /// The process id.
        pid: u32,
    },
    /// It printed something.
    Output {
        /// Where to.
        stream: Stream,
        /// What. Shared with the tape: reading copies nothing.
        bytes: Bytes,
    },
    /// Output that was overwritten before this reader came to it.
    Dropped {
        /// So many bytes.
        bytes: u64,
    },
    /// It is over. Last event.
    Ended {
        /// How.
        ended: ExecEnded,
        /// Whether it was ended because its own time was over.
        timed_out: bool,
    },
}

/// A tape and whoever waits for something on it.
#[derive(Debug)]
pub(crate) struct Tape {
    ring: Mutex<Ring>,
    written: Notify,
    read: Notify,
}

impl Default for Tape {
    fn default() -> Self {
        Self { ring: Mutex::new(Ring::new(RING)), written: Notify::new(), read: Notify::new() }
    }
}

impl Tape {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        // Nobody panics while holding it.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn started(&self, pid: u32) {
        self.ring().started = Some(pid);
        self.written.notify_waiters();
    }

    /// Waits until so many bytes can be written without overwriting what a reader holds back. Cancel safe.
    pub(crate) async fn room(&self, bytes: usize) {
        loop {
            let read = self.read.notified();
            tokio::pin!(read);
            read.as_mut().enable();
            if self.ring().has_room(bytes) {
                return;
            }
            read.await;
        }
    }

    /// A tape that holds everything for its first reader, until there is one or [`Tape::let_go`].
    pub(crate) fn expectant() -> Self {
        let tape = Self::default();
        tape.ring().expect();
        tape
    }

    /// The same of a command that had printed so much before there was this tape: that much is lost.
    pub(crate) fn begun_at(printed: u64) -> Self {
        let tape = Self::expectant();
        tape.ring().begin_at(printed);
        tape
    }

    /// Nobody came, or nobody minds: what is oldest may be overwritten.
    pub(crate) fn let_go(&self) {
        self.ring().let_go();
        self.read.notify_waiters();
    }

    pub(crate) fn write(&self, stream: Stream, bytes: Vec<u8>) {
        self.ring().push(stream, bytes);
        self.written.notify_waiters();
    }

    pub(crate) fn end(&self, ended: ExecEnded, timed_out: bool) {
        self.ring().ended.get_or_insert((ended, timed_out));
        self.written.notify_waiters();
    }

    /// What keeping it costs.
    pub(crate) fn cost(&self) -> usize {
        self.ring().cost
    }

    /// A reader from after this place.
    pub(crate) fn reader(self: &Arc<Self>, after: Option<u64>) -> TapeReader {
        let place = after.unwrap_or(0).min(self.ring().newest());
        TapeReader { tape: Arc::clone(self), place, hold: None }
    }
}

/// Reads a tape. Dropping it lets go of the tape.
#[derive(Debug)]
pub struct TapeReader {
    tape: Arc<Tape>,
    place: u64,
    hold: Option<u64>,
}

impl TapeReader {
    /// The next event and the place after it; `None` after the end. Cancel safe.
    pub async fn next(&mut self) -> Option<(u64, TapeEvent)> {
        let tape = Arc::clone(&self.tape);
        loop {
            let written = tape.written.notified();
            tokio::pin!(written);
            // In line before the look, so that nothing written in between is slept through.
            written.as_mut().enable();
            match self.look() {
                Look::Found(event) => return Some((self.place, event)),
                Look::Over => return None,
                Look::Nothing => written.await,
            }
        }
    }

    /// From here on the tape loses nothing that this reader has not seen: when the ring is full, the command waits for
    /// the reader, for as long as there is one.
    #[must_use]
    pub fn hold_back(mut self) -> Self {
        if self.hold.is_none() {
            let mut ring = self.tape.ring();
            self.hold = Some(ring.hold(self.place));
            // The first one has come. It holds the place before the tape lets go of its own.
            ring.let_go();
            drop(ring);
            self.tape.read.notify_waiters();
        }
        self
    }

    /// A reader that would rather lose something than be waited for; nobody else is waited for in its place.
    #[must_use]
    pub fn let_pass(self) -> Self {
        self.tape.let_go();
        self
    }

    /// Output that was overwritten before this reader came to it; what comes next is behind it. 0 for ever, once the reader
    /// holds the tape back and this was 0.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.tape.ring().missed(self.place)
    }

    fn look(&mut self) -> Look {
        let mut ring = self.tape.ring();
        let look = ring.after(self.place);
        let Some((place, event)) = look else {
            return if ring.ended.is_some() && self.place >= ring.end_place() {
                Look::Over
            } else {
                Look::Nothing
            };
        };
        self.place = place;
        if let Some(held) = self.hold.and_then(|hold| ring.holds.get_mut(&hold)) {
            *held = place;
            drop(ring);
            self.tape.read.notify_waiters();
        }
        Look::Found(event)
    }
}

impl Drop for TapeReader {
    fn drop(&mut self) {
        if let Some(hold) = self.hold {
            self.tape.ring().holds.remove(&hold);
            self.tape.read.notify_waiters();
        }
    }
}

enum Look {
    Found(TapeEvent),
    Nothing,
    Over,
}

#[cfg(test)]
mod tests;
