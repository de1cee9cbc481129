//! What a command printed, on a ring: replayed to whoever comes late, then live. Any number of readers.
//!
//! A place on the tape is a number: 0 is before everything, 1 after the start, 1 + n after n bytes of output, and the
//! end is one further than all output. Replay from any place is therefore exact, whatever pieces the output came in.
//!
//! The tape is written whether anybody reads it or not, so that no program stalls for want of a reader. A reader that is
//! slower than the program loses the oldest bytes and is told how many; one that must lose none asks for
//! [`TapeReader::hold_back`], and then the program waits for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::cards::ExecEnded;
use crate::outlet::Stream;

/// Bytes that a tape keeps, with what keeping them costs.
pub(crate) const RING: usize = 1024 * 1024;
/// What a piece costs beside its bytes.
const PIECE: usize = 64;
/// Pieces of one stream are joined up to this size.
const JOINED: usize = 4 * 1024;

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
        /// What.
        bytes: Vec<u8>,
    },
    /// Output that was overwritten before this reader came to it.
    Dropped {
        /// So many bytes.
        bytes: u64,
    },
    /// It is over. Last event.
    Ended(ExecEnded),
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

    pub(crate) fn write(&self, stream: Stream, bytes: Vec<u8>) {
        self.ring().push(stream, bytes);
        self.written.notify_waiters();
    }

    pub(crate) fn end(&self, ended: ExecEnded) {
        self.ring().ended.get_or_insert(ended);
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
            self.hold = Some(self.tape.ring().hold(self.place));
        }
        self
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

/// The ring itself: no clock, no waiting.
#[derive(Debug)]
struct Ring {
    started: Option<u32>,
    pieces: VecDeque<Piece>,
    /// Bytes of output that were ever written.
    total: u64,
    ended: Option<ExecEnded>,
    cost: usize,
    room: usize,
    /// Places of the readers that hold the tape back.
    holds: BTreeMap<u64, u64>,
    next_hold: u64,
}

#[derive(Debug)]
struct Piece {
    stream: Stream,
    /// Bytes of output before it.
    before: u64,
    bytes: Vec<u8>,
}

impl Piece {
    fn after(&self) -> u64 {
        self.before + length(&self.bytes)
    }
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

impl Ring {
    fn new(room: usize) -> Self {
        Self {
            started: None,
            pieces: VecDeque::new(),
            total: 0,
            ended: None,
            cost: 0,
            room,
            holds: BTreeMap::new(),
            next_hold: 0,
        }
    }

    fn end_place(&self) -> u64 {
        self.total + 2
    }

    /// The place after everything that is there.
    fn newest(&self) -> u64 {
        match (&self.ended, self.started) {
            (Some(_), _) => self.end_place(),
            (None, None) if self.total == 0 => 0,
            (None, _) => self.total + 1,
        }
    }

    fn hold(&mut self, place: u64) -> u64 {
        self.next_hold += 1;
        self.holds.insert(self.next_hold, place);
        self.next_hold
    }

    /// Whether so many bytes can be written without overwriting what somebody holds.
    fn has_room(&self, bytes: usize) -> bool {
        let Some(held) = self.holds.values().min() else { return true };
        let mut excess = (self.cost + bytes + PIECE).saturating_sub(self.room);
        for piece in &self.pieces {
            if excess == 0 {
                break;
            }
            if piece.after() + 1 > *held {
                return false;
            }
            excess = excess.saturating_sub(piece.bytes.len() + PIECE);
        }
        true
    }

    fn push(&mut self, stream: Stream, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let before = self.total;
        self.total += length(&bytes);
        self.cost += bytes.len();
        match self.pieces.back_mut() {
            Some(last) if last.stream == stream && last.bytes.len() + bytes.len() <= JOINED => {
                last.bytes.extend_from_slice(&bytes);
            }
            _ => {
                self.cost += PIECE;
                self.pieces.push_back(Piece { stream, before, bytes });
            }
        }
        while self.cost > self.room && self.pieces.len() > 1 {
            if let Some(oldest) = self.pieces.pop_front() {
                self.cost -= oldest.bytes.len() + PIECE;
            }
        }
    }

    /// What comes after this place, and the place after that.
    fn after(&self, place: u64) -> Option<(u64, TapeEvent)> {
        if let (0, Some(pid)) = (place, self.started) {
            return Some((1, TapeEvent::Started { pid }));
        }
        let seen = place.saturating_sub(1);
        if seen < self.total && place < self.end_place() {
            let at = self.pieces.partition_point(|piece| piece.after() <= seen);
            let piece = self.pieces.get(at)?;
            if seen < piece.before {
                return Some((piece.before + 1, TapeEvent::Dropped { bytes: piece.before - seen }));
            }
            let skip = usize::try_from(seen - piece.before).unwrap_or(usize::MAX);
            let bytes = piece.bytes.get(skip..).unwrap_or_default().to_vec();
            return Some((piece.after() + 1, TapeEvent::Output { stream: piece.stream, bytes }));
        }
        let ended = self.ended.clone().filter(|_| place < self.end_place())?;
        Some((self.end_place(), TapeEvent::Ended(ended)))
    }
}

#[cfg(test)]
mod tests;
