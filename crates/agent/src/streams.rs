//! A command's standard streams: pipes, or a terminal.
//!
//! The agent's ends never block; the command's ends do, as programs expect. Blocking is a property of one end of a
//! pipe, so it is set on ours alone.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_sys::spawn::Identity;
use blastbox_wire::agent::Io;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::files::guise::Guise;

/// Both sides of a command's streams.
#[derive(Debug)]
pub(crate) struct Streams {
    /// Where the agent writes standard input.
    pub(crate) input: Option<OwnedFd>,
    /// Where it reads standard output, or the terminal.
    pub(crate) output: OwnedFd,
    /// Where it reads standard error.
    pub(crate) error: Option<OwnedFd>,
    /// What the command gets.
    pub(crate) theirs: Theirs,
}

/// The command's side.
#[derive(Debug)]
pub(crate) enum Theirs {
    Pipes { input: OwnedFd, output: OwnedFd, error: OwnedFd },
    Terminal(OwnedFd),
}

impl Theirs {
    /// Standard input, output and error.
    pub(crate) fn standard(&self) -> [BorrowedFd<'_>; 3] {
        match self {
            Self::Pipes { input, output, error } => [input.as_fd(), output.as_fd(), error.as_fd()],
            Self::Terminal(peer) => [peer.as_fd(); 3],
        }
    }
}

/// Whether the command runs as somebody else than the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum User {
    Same,
    Other(Identity),
}

/// Makes the streams.
pub(crate) fn open(io: Io, user: User) -> Result<Streams, Errno> {
    match io {
        Io::Pipes => open_pipes(None, nothing()?, user),
        Io::PipesWithStdin => {
            let (theirs, ours) = pipe(user)?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            open_pipes(Some(ours), theirs, user)
        }
        Io::Terminal { rows, columns } => match open_terminal(rows, columns, peer_of) {
            // gVisor's terminals know their other end by name only, and belong to whoever opens them.
            Err(Errno::NOTTY) => as_user(user, || open_terminal(rows, columns, peer_by_name)),
            opened => opened,
        },
    }
}

fn open_pipes(input: Option<OwnedFd>, theirs: OwnedFd, user: User) -> Result<Streams, Errno> {
    let (output, their_output) = pipe(user)?;
    let (error, their_error) = pipe(user)?;
    rustix::io::ioctl_fionbio(&output, true)?;
    rustix::io::ioctl_fionbio(&error, true)?;
    let theirs = Theirs::Pipes { input: theirs, output: their_output, error: their_error };
    Ok(Streams { input, output, error: Some(error), theirs })
}

/// A pipe that the command may open again by the name of its descriptor (`/dev/stderr`), as it may at home. Nobody
/// else reaches it there.
fn pipe(user: User) -> Result<(OwnedFd, OwnedFd), Errno> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    match user {
        User::Same => {}
        User::Other(_) => match rustix::fs::fchmod(&write, Mode::from_raw_mode(0o666)) {
            // gVisor's pipes keep the mode that they are made with: there the command's user makes them.
            Err(Errno::PERM) => return as_user(user, || pipe_with(PipeFlags::CLOEXEC)),
            done => done?,
        },
    }
    Ok((read, write))
}

/// Makes something as the command's user.
fn as_user<T>(user: User, make: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
    let User::Other(identity) = user else { return make() };
    let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::PERM);
    let worn = Guise::new(Some(identity)).put_on().map_err(errno)?;
    let made = make();
    if worn.take_off().is_err() {
        // Whoever cannot become the agent again must not go on as it.
        std::process::abort();
    }
    made
}

/// Standard input with nothing in it. A pipe that nobody writes to serves where there is no such device.
fn nothing() -> Result<OwnedFd, Errno> {
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    null.or_else(|_| pipe_with(PipeFlags::CLOEXEC).map(|(read, _)| read))
}

fn open_terminal(
    rows: u16,
    columns: u16,
    peer: impl Fn(&OwnedFd) -> Result<OwnedFd, Errno>,
) -> Result<Streams, Errno> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    // The box's own terminals first; the other name is a link to it, or where a host without boxes has it.
    let output = rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())
        .or_else(|_| rustix::fs::open("/dev/ptmx", flags, Mode::empty()))?;
    rustix::pty::unlockpt(&output)?;
    resize(output.as_fd(), rows, columns)?;
    let peer = peer(&output)?;
    let input = rustix::io::fcntl_dupfd_cloexec(&output, 3)?;
    Ok(Streams { input: Some(input), output, error: None, theirs: Theirs::Terminal(peer) })
}

/// The other end of a terminal, by the descriptor that we hold: whatever lies at its name.
fn peer_of(terminal: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    rustix::pty::ioctl_tiocgptpeer(terminal, flags)
}

/// The same by its name.
fn peer_by_name(terminal: &OwnedFd) -> Result<OwnedFd, Errno> {
    let name = rustix::pty::ptsname(terminal, Vec::new())?;
    rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
}

/// Gives a terminal another size.
pub(crate) fn resize(terminal: BorrowedFd<'_>, rows: u16, columns: u16) -> Result<(), Errno> {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(terminal, size)
}
