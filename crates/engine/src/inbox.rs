//! Bytes of the agent that are not a whole frame yet.
//!
//! They are a guest's bytes: the room for them grows with what has arrived, never with a length that a frame announces,
//! and never beyond four frames, which is as much as a socket brings at once.

use std::io;

use blastbox_wire::agent::{AgentFrame, FrameError, parse};
use blastbox_wire::limits::MAX_AGENT_FRAME;

const SMALL: usize = 4 * 1024;
/// Whole frames that may be read at once. One would be enough; each read of more saves turns of the driver.
const FRAMES: usize = 4;
/// Kind and length, before the body.
const HEAD: usize = 5;

/// Bytes that are waiting for the rest of their frame.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    filled: usize,
}

impl Default for Inbox {
    fn default() -> Self {
        Self { bytes: vec![0; SMALL], filled: 0 }
    }
}

impl Inbox {
    /// Reads once. 0: the other side is gone.
    pub(crate) fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        if self.filled == self.bytes.len() {
            let more = (self.bytes.len() * 2).min(FRAMES * (MAX_AGENT_FRAME + HEAD));
            self.bytes.resize(more, 0);
        }
        let got = read(self.bytes.get_mut(self.filled..).unwrap_or_default())?;
        self.filled += got;
        Ok(got)
    }

    /// Looks once at what is there, without taking it: what was seen before is seen again. 0: the other side is gone.
    pub(crate) fn look(&mut self, peek: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<usize> {
        // As many as hold a whole frame, so that half of one is never all that can be seen.
        self.bytes.resize(FRAMES * (MAX_AGENT_FRAME + HEAD), 0);
        self.filled = 0;
        self.fill(peek)
    }

    /// Forgets what was only looked at: it is still where it was.
    pub(crate) fn forget(&mut self) {
        self.filled = 0;
    }

    /// Hands every whole frame to `take`, in order, until it says stop. How many bytes they were.
    pub(crate) fn frames<E: From<FrameError>>(
        &mut self,
        mut take: impl FnMut(AgentFrame<'_>) -> Result<(), E>,
    ) -> Result<usize, E> {
        let mut at = 0;
        while let Some((frame, taken)) = parse(self.bytes.get(at..self.filled).unwrap_or_default())? {
            at += taken;
            take(frame)?;
        }
        self.bytes.copy_within(at..self.filled, 0);
        self.filled -= at;
        Ok(at)
    }

    /// Gives back the room that a talkative command needed.
    pub(crate) fn relax(&mut self) {
        if self.filled <= SMALL && self.bytes.len() > SMALL {
            self.bytes.truncate(SMALL);
            self.bytes.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds the bytes in pieces of the given size and counts the frames.
    fn feed(inbox: &mut Inbox, bytes: &[u8], piece: usize) -> Result<usize, FrameError> {
        let mut seen = 0;
        let mut rest = bytes;
        while !rest.is_empty() {
            let got = inbox
                .fill(|room| {
                    let count = room.len().min(piece).min(rest.len());
                    room[..count].copy_from_slice(&rest[..count]);
                    Ok(count)
                })
                .unwrap();
            assert!(got > 0, "a full inbox that holds no frame would never be read again");
            rest = &rest[got..];
            inbox.frames(|_| -> Result<(), FrameError> {
                seen += 1;
                Ok(())
            })?;
        }
        Ok(seen)
    }

    #[test]
    fn frames_come_out_whole_whatever_the_pieces() {
        let big = vec![7; 64 * 1024];
        let mut bytes = Vec::new();
        for number in 0..5_u64 {
            bytes.extend(AgentFrame::Pong { token: number }.encode());
            bytes.extend(AgentFrame::Output { exec: 1, stream: 1, bytes: &big }.encode());
        }
        for piece in [1, 7, 4_096, 1 << 20] {
            assert_eq!(feed(&mut Inbox::default(), &bytes, piece), Ok(10));
        }
    }

    #[test]
    fn a_lying_length_is_refused_before_any_room_is_made() {
        let mut inbox = Inbox::default();
        assert!(feed(&mut inbox, &[4, 0xff, 0xff, 0xff, 0xff], 5).is_err());
        assert_eq!(inbox.bytes.len(), SMALL);
    }

    #[test]
    fn room_is_given_back() {
        let mut inbox = Inbox::default();
        feed(&mut inbox, &AgentFrame::Output { exec: 1, stream: 1, bytes: &[0; 60_000] }.encode(), 1 << 20)
            .unwrap();
        assert!(inbox.bytes.len() > SMALL);
        inbox.relax();
        assert_eq!(inbox.bytes.len(), SMALL);
    }
}
