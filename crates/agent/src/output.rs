//! One stream of output on its way from a command to the host.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_wire::limits::MAX_OUTPUT_CHUNK;
use rustix::io::Errno;

use crate::control::Control;

/// The first reads are small: most commands say little.
const FIRST_GULP: usize = 4 * 1024;
/// What the pipe of a command that says much holds: with 64 KiB the command and the agent take turns all the time.
const WIDE: usize = 256 * 1024;
/// A terminal does not tell how much it holds. This is more than it can.
const MOST_IN_A_TERMINAL: usize = 1024 * 1024;

/// Which stream it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Output,
    Error,
    Terminal,
}

impl Source {
    /// The stream's number in frames.
    fn number(self) -> u8 {
        match self {
            Self::Output | Self::Terminal => 1,
            Self::Error => 2,
        }
    }
}

/// One stream.
#[derive(Debug)]
pub(crate) struct Output {
    source: Source,
    /// `None`: there will be no more.
    from: Option<OwnedFd>,
    readable: bool,
    gulp: usize,
    /// Bytes that may still be read, once the command has ended.
    left: Option<usize>,
}

impl Output {
    pub(crate) fn new(source: Source, from: OwnedFd) -> Self {
        Self { source, from: Some(from), readable: false, gulp: FIRST_GULP, left: None }
    }

    /// Where it is read.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.from.as_ref().map(AsFd::as_fd)
    }

    /// The command may have written.
    pub(crate) fn ready(&mut self) {
        self.readable = true;
    }

    /// Whether a read could bring something.
    pub(crate) fn is_ready(&self) -> bool {
        self.readable && self.from.is_some()
    }

    /// The command has ended: what it has written is still read, what others write from now on is not. Without a bound
    /// a process that it left behind could keep the command from ever being reported as ended.
    pub(crate) fn last_call(&mut self) {
        let Some(from) = &self.from else { return };
        let held = match self.source {
            Source::Terminal => MOST_IN_A_TERMINAL,
            Source::Output | Source::Error => {
                rustix::io::ioctl_fionread(from).ok().and_then(|held| usize::try_from(held).ok()).unwrap_or(0)
            }
        };
        self.left = Some(held);
        self.readable = true;
        if held == 0 {
            self.from = None;
        }
    }

    /// Reads once, as far as the credit goes. Returns what was read.
    pub(crate) fn pump(&mut self, exec: u32, credit: u64, control: &mut Control) -> usize {
        let Some(from) = &self.from else { return 0 };
        let most = self.gulp.min(usize::try_from(credit).unwrap_or(usize::MAX));
        let most = most.min(self.left.unwrap_or(usize::MAX));
        if most == 0 || !self.readable {
            return 0;
        }
        match control.send_output(exec, self.source.number(), from.as_fd(), most) {
            Ok(0) => self.from = None,
            Ok(got) => {
                if got == self.gulp && self.gulp < MAX_OUTPUT_CHUNK {
                    self.gulp = self.gulp.saturating_mul(4).min(MAX_OUTPUT_CHUNK);
                    if self.gulp == MAX_OUTPUT_CHUNK && self.source != Source::Terminal {
                        // Only now, because the kernel counts what all pipes of a user may hold. Without it works as well.
                        rustix::pipe::fcntl_setpipe_size(from, WIDE).ok();
                    }
                }
                self.left = self.left.map(|left| left.saturating_sub(got));
                if self.left == Some(0) {
                    self.from = None;
                }
                return got;
            }
            Err(Errno::AGAIN) if self.left.is_none() => self.readable = false,
            // Nothing more to read; or a terminal that nobody has open any more, which says EIO.
            Err(_) => self.from = None,
        }
        0
    }
}
