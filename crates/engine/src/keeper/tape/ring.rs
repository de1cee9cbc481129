//! The ring under a tape: no clock, no waiting, no locks.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use hyper::body::Bytes;

use super::TapeEvent;
use crate::keeper::cards::ExecEnded;
use crate::outlet::Stream;

/// What a piece costs beside its bytes.
const PIECE: usize = 64;
/// Pieces of one stream are joined up to this size.
const JOINED: usize = 4 * 1024;

/// The ring.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) started: Option<u32>,
    pieces: VecDeque<Piece>,
    /// Bytes of output that were ever written.
    total: u64,
    /// How it ended, and whether because its own time was over.
    pub(super) ended: Option<(ExecEnded, bool)>,
    pub(super) cost: usize,
    room: usize,
    /// Places of the readers that hold the tape back.
    pub(super) holds: BTreeMap<u64, u64>,
    next_hold: u64,
}

/// The hold for a first reader that has not come yet: a number that [`Ring::hold`] never gives.
const EXPECTED: u64 = 0;

#[derive(Debug)]
struct Piece {
    stream: Stream,
    /// Bytes of output before it.
    before: u64,
    bytes: Bytes,
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
    pub(super) fn new(room: usize) -> Self {
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

    pub(super) fn end_place(&self) -> u64 {
        self.total.saturating_add(2)
    }

    /// The place after everything that is there.
    pub(super) fn newest(&self) -> u64 {
        match (&self.ended, self.started) {
            (Some(_), _) => self.end_place(),
            (None, None) if self.total == 0 => 0,
            (None, _) => self.total.saturating_add(1),
        }
    }

    pub(super) fn hold(&mut self, place: u64) -> u64 {
        self.next_hold += 1;
        self.holds.insert(self.next_hold, place);
        self.next_hold
    }

    /// So much was printed before there was a ring.
    pub(super) fn begin_at(&mut self, printed: u64) {
        self.total = printed;
    }

    /// Holds everything for a first reader.
    pub(super) fn expect(&mut self) {
        self.holds.insert(EXPECTED, 0);
    }

    /// Waits for no first reader any more.
    pub(super) fn let_go(&mut self) {
        self.holds.remove(&EXPECTED);
    }

    /// Whether so many bytes can be written without overwriting what somebody holds.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
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

    pub(super) fn push(&mut self, stream: Stream, bytes: Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let before = self.total;
        self.total += length(&bytes);
        self.cost += bytes.len();
        match self.pieces.back_mut() {
            Some(last) if last.stream == stream && last.bytes.len() + bytes.len() <= JOINED => {
                last.bytes = match mem::take(&mut last.bytes).try_into_mut() {
                    Ok(mut open) => {
                        open.extend_from_slice(&bytes);
                        open.freeze()
                    }
                    // Somebody reads it, and keeps what there was.
                    Err(read) => [&read[..], &bytes].concat().into(),
                };
            }
            _ => {
                self.cost += PIECE;
                self.pieces.push_back(Piece { stream, before, bytes: bytes.into() });
            }
        }
        while self.cost > self.room && self.pieces.len() > 1 {
            if let Some(oldest) = self.pieces.pop_front() {
                self.cost -= oldest.bytes.len() + PIECE;
            }
        }
    }

    /// How much of what comes after this place was overwritten.
    pub(super) fn missed(&self, place: u64) -> u64 {
        let oldest = self.pieces.front().map_or(self.total, |piece| piece.before);
        oldest.saturating_sub(place.saturating_sub(1))
    }

    /// What comes after this place, and the place after that.
    pub(super) fn after(&self, place: u64) -> Option<(u64, TapeEvent)> {
        if let (0, Some(pid)) = (place, self.started) {
            return Some((1, TapeEvent::Started { pid }));
        }
        let seen = place.saturating_sub(1);
        if seen < self.total && place < self.end_place() {
            let at = self.pieces.partition_point(|piece| piece.after() <= seen);
            let Some(piece) = self.pieces.get(at) else {
                return Some((self.total.saturating_add(1), TapeEvent::Dropped { bytes: self.total - seen }));
            };
            if seen < piece.before {
                return Some((piece.before + 1, TapeEvent::Dropped { bytes: piece.before - seen }));
            }
            let skip = usize::try_from(seen - piece.before).unwrap_or(usize::MAX);
            let bytes = piece.bytes.slice(skip.min(piece.bytes.len())..);
            return Some((piece.after() + 1, TapeEvent::Output { stream: piece.stream, bytes }));
        }
        let (ended, timed_out) = self.ended.clone().filter(|_| place < self.end_place())?;
        Some((self.end_place(), TapeEvent::Ended { ended, timed_out }))
    }
}

#[cfg(test)]
mod tests;
