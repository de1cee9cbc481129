//! What a command says, on its way from the driver to whoever listens.
//!
//! A listener that stalls costs the window that the agent was granted and nothing more, whatever the guest does:
//! neighbouring pieces of one stream are merged, and when a guest alternates between the streams byte by byte, order
//! between them is given up before memory is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use blastbox_wire::agent::{Exit, Stage, Usage};
use blastbox_wire::limits::{MAX_OUTPUT_CHUNK, OUTPUT_WINDOW};
use tokio::sync::Notify;

use crate::outcome::Ending;
use crate::tools::ToolCall;

/// Pieces that may wait before the order between the streams is given up.
const MOST_PIECES: usize = 64;
/// Consumed bytes are acknowledged in steps of this size: small outputs need no frame at all.
const CREDIT_STEP: u32 = OUTPUT_WINDOW / 8;

/// Which stream a piece of output belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, and everything on a terminal.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Something that happened to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    /// It runs, under this process id inside the box.
    Started {
        /// The process id inside the box.
        pid: u32,
    },
    /// It wrote something.
    Output {
        /// Where to.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
    /// It calls a function that it was offered, and waits for [`Exec::answer`](crate::Exec::answer).
    Called(ToolCall),
    /// It is over. Last event; asked again, it comes again.
    Ended(ExecEnd),
}

/// How a command is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEnd {
    /// It ended by itself.
    Exited {
        /// How.
        exit: Exit,
        /// What its process used.
        usage: Usage,
    },
    /// It could not be started.
    NotStarted {
        /// What failed.
        stage: Stage,
        /// Why, as an errno.
        errno: i32,
    },
    /// Its box ended first, for this reason.
    BoxEnded(Ending),
}

impl From<ExecEnd> for Ending {
    fn from(end: ExecEnd) -> Self {
        match end {
            ExecEnd::Exited { exit, .. } => Self::Exited(exit),
            ExecEnd::NotStarted { stage, errno } => Self::NotStarted { stage, errno },
            ExecEnd::BoxEnded(ending) => ending,
        }
    }
}

/// The place where the driver puts and the listener takes.
#[derive(Debug, Default)]
pub(crate) struct Outlet {
    queue: Mutex<Queue>,
    filled: Notify,
    /// Bytes that the listener took and the agent was not told of yet.
    uncredited: AtomicU32,
}

#[derive(Debug, Default)]
struct Queue {
    started: Option<u32>,
    pieces: VecDeque<(Stream, Vec<u8>)>,
    /// Behind all output: it prints nothing until it is answered.
    call: Option<ToolCall>,
    end: Option<ExecEnd>,
}

impl Outlet {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nobody panics while holding it; if somebody did, the queue would still be a queue.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn started(&self, pid: u32) {
        self.queue().started = Some(pid);
        self.filled.notify_one();
    }

    pub(crate) fn push(&self, stream: Stream, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.queue().push(stream, bytes);
            self.filled.notify_one();
        }
    }

    /// Says that it calls somebody. There is no second one before the first is answered.
    pub(crate) fn call(&self, call: ToolCall) {
        self.queue().call = Some(call);
        self.filled.notify_one();
    }

    /// Says that it is over. The first reason stays.
    pub(crate) fn end(&self, end: ExecEnd) {
        self.queue().end.get_or_insert(end);
        self.filled.notify_one();
    }

    /// The next thing that happened. Cancel safe: what is not returned stays.
    pub(crate) async fn next(&self) -> ExecEvent {
        loop {
            if let Some(event) = self.queue().take() {
                if let ExecEvent::Output { bytes, .. } = &event {
                    self.uncredited
                        .fetch_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
                }
                return event;
            }
            self.filled.notified().await;
        }
    }

    /// Whether enough was taken that the agent should hear of it.
    pub(crate) fn owes_credit(&self) -> bool {
        self.uncredited.load(Ordering::Relaxed) >= CREDIT_STEP
    }

    /// The credit that is due, if it is worth a frame. It is not due again.
    pub(crate) fn take_credit(&self) -> Option<u32> {
        self.owes_credit().then(|| self.uncredited.swap(0, Ordering::Relaxed))
    }
}

impl Queue {
    fn push(&mut self, stream: Stream, bytes: &[u8]) {
        let full = self.pieces.len() >= MOST_PIECES;
        let fits = |(other, piece): &&mut (Stream, Vec<u8>)| {
            *other == stream && (full || piece.len() + bytes.len() <= MAX_OUTPUT_CHUNK)
        };
        let home = if full {
            self.pieces.iter_mut().rev().find(fits)
        } else {
            self.pieces.back_mut().filter(|piece| fits(piece))
        };
        match home {
            Some((_, piece)) => piece.extend_from_slice(bytes),
            None => self.pieces.push_back((stream, bytes.to_vec())),
        }
    }

    fn take(&mut self) -> Option<ExecEvent> {
        if let Some(pid) = self.started.take() {
            return Some(ExecEvent::Started { pid });
        }
        if let Some((stream, bytes)) = self.pieces.pop_front() {
            return Some(ExecEvent::Output { stream, bytes });
        }
        if let (Some(call), None) = (self.call.take(), &self.end) {
            return Some(ExecEvent::Called(call));
        }
        self.end.clone().map(ExecEvent::Ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut Queue) -> Vec<(Stream, Vec<u8>)> {
        std::iter::from_fn(|| match queue.take() {
            Some(ExecEvent::Output { stream, bytes }) => Some((stream, bytes)),
            _ => None,
        })
        .collect()
    }

    #[test]
    fn neighbours_are_merged_and_order_is_kept() {
        let mut queue = Queue::default();
        for (stream, text) in
            [(Stream::Stdout, "a"), (Stream::Stdout, "b"), (Stream::Stderr, "c"), (Stream::Stdout, "d")]
        {
            queue.push(stream, text.as_bytes());
        }
        let expected = [
            (Stream::Stdout, b"ab".to_vec()),
            (Stream::Stderr, b"c".to_vec()),
            (Stream::Stdout, b"d".to_vec()),
        ];
        assert_eq!(drain(&mut queue), expected);
    }

    #[test]
    fn a_guest_that_alternates_byte_by_byte_costs_bytes_and_not_pieces() {
        let mut queue = Queue::default();
        for number in 0..100_000_u32 {
            let stream = if number % 2 == 0 { Stream::Stdout } else { Stream::Stderr };
            queue.push(stream, b"x");
        }
        assert!(queue.pieces.len() <= MOST_PIECES);
        let total: usize = drain(&mut queue).iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(total, 100_000);
    }

    #[test]
    fn the_end_comes_last_and_stays() {
        let outlet = Outlet::default();
        outlet.end(ExecEnd::BoxEnded(Ending::TimedOut));
        outlet.end(ExecEnd::BoxEnded(Ending::OutputSpent));
        outlet.push(Stream::Stdout, b"late");
        let mut queue = outlet.queue();
        assert!(matches!(queue.take(), Some(ExecEvent::Output { .. })));
        for _ in 0..2 {
            assert_eq!(queue.take(), Some(ExecEvent::Ended(ExecEnd::BoxEnded(Ending::TimedOut))));
        }
    }

    #[test]
    fn small_outputs_need_no_credit() {
        let outlet = Outlet::default();
        outlet.uncredited.store(CREDIT_STEP - 1, Ordering::Relaxed);
        assert_eq!(outlet.take_credit(), None);
        outlet.uncredited.store(CREDIT_STEP, Ordering::Relaxed);
        assert_eq!(outlet.take_credit(), Some(CREDIT_STEP));
        assert_eq!(outlet.take_credit(), None);
    }
}
