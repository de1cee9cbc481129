//! What an operation works with for the length of one step: its credit, its bytes from the host, the way back.

use std::collections::VecDeque;

use blastbox_wire::agent::{AgentFrame, Coverage, FileEnd, FileSay};
use blastbox_wire::limits::{FILE_WINDOW, MAX_FILE_CHUNK};
use rustix::io::Errno;

use super::place::Places;
use super::trouble::Trouble;
use crate::control::Control;
use crate::input::OverWindow;

/// What comes after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Another one, as soon as it is this operation's turn.
    Again,
    /// Nothing, until credit, bytes or an event come.
    Sleep,
    /// Nothing: it is over.
    Done(FileEnd),
}

/// It is over, and everything was done.
pub(super) fn finished(amount: u64) -> Next {
    Next::Done(FileEnd::Finished { amount, skipped: 0, coverage: Coverage::Whole })
}

/// A step, or why there is no next one.
pub(super) type Step = Result<Next, Trouble>;

/// Everything that one step may use.
#[derive(Debug)]
pub(super) struct Desk<'a> {
    pub(super) op: u32,
    pub(super) credit: &'a mut u64,
    pub(super) inflow: &'a mut Inflow,
    pub(super) control: &'a mut Control,
    pub(super) places: &'a Places,
    /// Directories that may still be watched in this box.
    pub(super) watches: usize,
}

impl Desk<'_> {
    /// Says something, at the cost that it has.
    pub(super) fn say(&mut self, say: FileSay<'_>) {
        *self.credit = self.credit.saturating_sub(u64::try_from(say.cost()).unwrap_or(u64::MAX));
        self.control.send(&AgentFrame::File { op: self.op, say });
    }

    /// How much may be sent in one frame now.
    pub(super) fn allowance(&self) -> usize {
        usize::try_from(*self.credit).unwrap_or(usize::MAX).min(MAX_FILE_CHUNK)
    }

    /// Sends bytes that `fill` puts right into the queue, at most `most`. Returns how many.
    pub(super) fn chunk(
        &mut self,
        most: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let got = self.control.send_chunk(self.op, most.min(self.allowance()), fill)?;
        *self.credit = self.credit.saturating_sub(u64::try_from(got).unwrap_or(u64::MAX));
        Ok(got)
    }
}

/// Bytes of the host for one operation, not used yet.
#[derive(Debug, Default)]
pub(super) struct Inflow {
    pieces: VecDeque<Vec<u8>>,
    held: usize,
    pub(super) ended: bool,
}

impl Inflow {
    pub(super) fn push(&mut self, bytes: Vec<u8>) -> Result<(), OverWindow> {
        let held = self.held.saturating_add(bytes.len());
        if self.ended || u32::try_from(held).map_or(true, |held| held > FILE_WINDOW) {
            return Err(OverWindow);
        }
        if !bytes.is_empty() {
            self.held = held;
            self.pieces.push_back(bytes);
        }
        Ok(())
    }

    /// The next piece. Whoever takes it tells the host so, when it is used.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let piece = self.pieces.pop_front()?;
        self.held = self.held.saturating_sub(piece.len());
        Some(piece)
    }

    /// Whether all is used that will ever come.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.pieces.is_empty()
    }
}
