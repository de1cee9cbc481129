//! The caller's own terminal, in raw mode while a box uses it, and as it was before whatever happens.

use std::io;

use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

use crate::problem::Problem;

/// A terminal in raw mode. Dropping this restores it, also while a panic unwinds.
pub(crate) struct RawTerminal {
    before: Termios,
}

impl RawTerminal {
    /// Switches the terminal on standard input to raw mode: every key goes to the box, Ctrl-C too.
    pub(crate) fn enter() -> Result<Self, Problem> {
        let stdin = rustix::stdio::stdin();
        if !isatty(stdin) {
            return Err(Problem::NotATerminal);
        }
        let failed = |errno: rustix::io::Errno| Problem::Terminal(errno.into());
        let before = tcgetattr(stdin).map_err(failed)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin, OptionalActions::Now, &raw).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that went away needs no restoring.
        tcsetattr(rustix::stdio::stdin(), OptionalActions::Now, &self.before).ok();
    }
}

/// Lines and columns of the terminal on standard input; a usual size where it does not know.
pub(crate) fn size() -> (u16, u16) {
    match tcgetwinsize(rustix::stdio::stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => (size.ws_row, size.ws_col),
        Ok(_) | Err(_) => (24, 80),
    }
}

/// Whether standard input is a terminal.
pub(crate) fn on_stdin() -> bool {
    isatty(rustix::stdio::stdin())
}

/// One read of standard input, as often as it takes. 0: there is no more.
pub(crate) fn read_stdin(room: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut *room) {
            Ok(count) => return Ok(count),
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::AGAIN) => {
                let mut wait = [rustix::event::PollFd::from_borrowed_fd(
                    rustix::stdio::stdin(),
                    rustix::event::PollFlags::IN,
                )];
                rustix::event::poll(&mut wait, None).map_err(io::Error::from)?;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}
