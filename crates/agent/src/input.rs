//! Standard input on its way from the host into one command.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use blastbox_wire::limits::STDIN_WINDOW;
use rustix::io::Errno;

/// The character that ends input on a terminal (`VEOF`).
const END_OF_INPUT: [u8; 1] = [4];

/// What ends a command's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Closing the pipe.
    Close,
    /// Typing the terminal's character for it.
    Type,
}

/// The host has sent more than the window allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverWindow;

/// What waits to be read by the command.
#[derive(Debug)]
pub(crate) struct Input {
    /// `None`: nobody reads any more, and what the host sends is taken and dropped.
    to: Option<OwnedFd>,
    ending: Ending,
    queue: VecDeque<Vec<u8>>,
    /// How much of the first piece is written.
    written: usize,
    /// Bytes that the host has sent and that were not reported as taken.
    owed: usize,
    end_asked: bool,
    writable: bool,
}

impl Input {
    pub(crate) fn new(to: Option<OwnedFd>, ending: Ending) -> Self {
        let queue = VecDeque::new();
        Self { to, ending, queue, written: 0, owed: 0, end_asked: false, writable: true }
    }

    /// The command may have made room.
    pub(crate) fn ready(&mut self) {
        self.writable = true;
    }

    /// Takes bytes from the host.
    pub(crate) fn push(&mut self, bytes: Vec<u8>) -> Result<(), OverWindow> {
        let owed = self.owed.saturating_add(bytes.len());
        if u32::try_from(owed).map_or(true, |owed| owed > STDIN_WINDOW) {
            return Err(OverWindow);
        }
        self.owed = owed;
        if self.to.is_some() && !self.end_asked && !bytes.is_empty() {
            self.queue.push_back(bytes);
        }
        Ok(())
    }

    /// No more will come.
    pub(crate) fn end(&mut self) {
        self.end_asked = true;
    }

    /// What the host has sent and was not told to be taken, and whether more may come.
    pub(crate) fn standing(&self) -> (u32, bool) {
        (u32::try_from(self.owed).unwrap_or(u32::MAX), self.to.is_some() && !self.end_asked)
    }

    /// Writes what the command takes now. The number is what the host may be told is gone.
    pub(crate) fn pump(&mut self) -> u32 {
        while self.writable && self.step() {}
        if self.to.is_none() {
            self.queue.clear();
            self.written = 0;
        }
        let queued: usize = self.queue.iter().map(Vec::len).sum();
        let left = queued.saturating_sub(self.written);
        let taken = self.owed.saturating_sub(left);
        self.owed = left;
        u32::try_from(taken).unwrap_or(u32::MAX)
    }

    /// One write. Whether another may follow.
    fn step(&mut self) -> bool {
        let Some(to) = &self.to else { return false };
        let piece = match self.queue.front() {
            Some(piece) => piece.get(self.written..).unwrap_or_default(),
            None if self.end_asked && self.ending == Ending::Type => &END_OF_INPUT,
            None => {
                if self.end_asked {
                    self.to = None;
                }
                return false;
            }
        };
        match rustix::io::retry_on_intr(|| rustix::io::write(to, piece)) {
            Ok(done) if self.queue.is_empty() => {
                // The end was typed. The terminal stays: the command may go on to read.
                self.end_asked &= done == 0;
            }
            Ok(done) => {
                self.written = self.written.saturating_add(done);
                if self.queue.front().is_some_and(|piece| self.written >= piece.len()) {
                    self.queue.pop_front();
                    self.written = 0;
                }
            }
            Err(Errno::AGAIN) => self.writable = false,
            // The command has closed its end.
            Err(_) => self.to = None,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_that_nobody_reads_is_taken_and_dropped() {
        let mut input = Input::new(None, Ending::Close);
        input.push(vec![0; 1000]).unwrap();
        assert_eq!(input.pump(), 1000);
        assert_eq!(input.pump(), 0);
    }

    #[test]
    fn the_window_holds_until_the_command_has_read() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        rustix::io::ioctl_fionbio(&write, true).unwrap();
        let mut input = Input::new(Some(write), Ending::Close);
        for _ in 0..4 {
            input.push(vec![b'x'; 64 * 1024]).unwrap();
        }
        assert_eq!(input.push(vec![b'x']), Err(OverWindow));
        let taken = input.pump();
        assert!(taken > 0 && taken < STDIN_WINDOW);
        assert_eq!(input.push(vec![b'x'; taken as usize + 1]), Err(OverWindow));
        assert_eq!(input.push(vec![b'x'; taken as usize]), Ok(()));
        drop(read);
        input.ready();
        assert_eq!(input.pump(), STDIN_WINDOW);
    }

    #[test]
    fn the_end_comes_after_what_was_sent_before_it() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let mut input = Input::new(Some(write), Ending::Close);
        input.push(b"last words".to_vec()).unwrap();
        input.end();
        assert_eq!(input.pump(), 10);
        let mut heard = [0; 32];
        assert_eq!(rustix::io::read(&read, &mut heard), Ok(10));
        assert_eq!(rustix::io::read(&read, &mut heard), Ok(0));
    }
}
