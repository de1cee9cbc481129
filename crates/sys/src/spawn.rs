//! How a command is started inside a box, and how its parent, the first process there, keeps house.
//!
//! [`spawn`] forks and returns at once. Whether the program really runs is told later, by the descriptor in
//! [`Spawned`]: nobody waits for the child. That matters, because a child that has made a denied system call sleeps
//! until its parent answers it; a parent that slept for the child would never wake up.
//!
//! Must not: be used by a program with threads. The child runs on a copy of the parent's memory (or, where that is lent,
//! on the parent's), and what another thread held at that moment stays held.

mod child;
mod house;

pub use house::{
    Dead, Patience, hear_signals, hold_signals, keep_only, kill_everything, reap, signal_group,
    watch_children,
};

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

/// A user and a group to become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub uid: u32,
    /// The group; supplementary groups are given up.
    pub gid: u32,
    /// Capabilities that stay, by their numbers below 32; all others are given up.
    pub keeps: u32,
}

/// Whether standard input is a terminal that the new session takes as its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// The session has no terminal.
    None,
    /// Standard input becomes the session's controlling terminal.
    Controlling,
}

/// The memory on which a child prepares to be the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A copy of the parent's: the parent goes on at once.
    Copied,
    /// The parent's own, which waits until it has it back. For kernels in which a copy costs more than the command (gVisor's), and
    /// only where no call of the child waits for an answer of its parent: that would be for ever.
    Lent,
}

/// A command, ready to be started.
#[derive(Debug, Clone, Copy)]
pub struct Spawn<'a> {
    /// Paths to try, in order, as the search path gives them.
    pub programs: &'a [CString],
    /// The arguments, beginning with the program's name.
    pub arguments: &'a [CString],
    /// The whole environment.
    pub environment: &'a [CString],
    /// The working directory, entered as the new user.
    pub directory: &'a CStr,
    /// Who to become; `None` stays who the caller is.
    pub identity: Option<Identity>,
    /// Standard input, output and error. Above 2: they are copied down, and must not be overwritten on the way.
    pub streams: [BorrowedFd<'a>; 3],
    /// Whether standard input is the session's terminal.
    pub terminal: Terminal,
    /// How gladly the kernel kills it when memory runs out, -1000 to 1000. Best effort. `None`: as gladly as its parent.
    pub oom_score_adj: Option<i16>,
    /// Where it gets ready.
    pub memory: Memory,
}

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The program is not there.
    Find,
    /// The working directory cannot be entered.
    Directory,
    /// The standard streams could not be put in place.
    Streams,
    /// No process could be made.
    Fork,
    /// The identity could not be taken on.
    Identity,
    /// The kernel refused the program.
    Execute,
}

impl Stage {
    /// The letter by which the child names the stage: `from_letter` reads it.
    const fn letter(self) -> u8 {
        match self {
            Self::Find => b'f',
            Self::Directory => b'd',
            Self::Streams => b's',
            Self::Fork => b'k',
            Self::Identity => b'i',
            Self::Execute => b'x',
        }
    }
    const fn from_letter(letter: u8) -> Self {
        match letter {
            b'f' => Self::Find,
            b'd' => Self::Directory,
            b's' => Self::Streams,
            b'k' => Self::Fork,
            b'i' => Self::Identity,
            _ => Self::Execute,
        }
    }
}

/// Why a command could not be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnError {
    /// What failed.
    pub stage: Stage,
    /// Why.
    pub errno: i32,
}

/// A process that is about to become the command.
#[derive(Debug)]
pub struct Spawned {
    /// Its process id, and that of its group.
    pub pid: Pid,
    /// Becomes readable when the start has succeeded or failed: see [`outcome`].
    pub outcome: OwnedFd,
}

/// Starts a command in a process group of its own, and with a terminal in a session of its own. Returns before the
/// program runs.
///
/// Signal dispositions are inherited: [`watch_children`] has set them all to default in a program that called it.
pub fn spawn(spawn: &Spawn<'_>) -> Result<Spawned, SpawnError> {
    let streams = spawn.streams.map(|stream| stream.as_raw_fd());
    if streams.iter().any(|&fd| fd <= 2) {
        return Err(SpawnError { stage: Stage::Streams, errno: libc::EBADF });
    }
    let (outcome, report) = pipe_with(PipeFlags::CLOEXEC)
        .map_err(|errno| SpawnError { stage: Stage::Streams, errno: errno.raw_os_error() })?;

    // Everything that the child needs is made here: after the fork it must not allocate.
    let programs: Vec<_> = spawn.programs.iter().map(|text| text.as_ptr()).collect();
    let arguments = null_terminated(spawn.arguments);
    let environment = null_terminated(spawn.environment);
    let score = spawn.oom_score_adj.map(|score| score.to_string());
    let orders = child::Orders {
        programs: &programs,
        arguments: &arguments,
        environment: &environment,
        directory: spawn.directory,
        identity: spawn.identity,
        streams,
        terminal: spawn.terminal,
        oom_score_adj: score.as_deref().map(str::as_bytes),
        report: report.as_raw_fd(),
    };
    let pid = match spawn.memory {
        // A plain fork, by the old call: the box's filter knows what `clone` asks for, but cannot look into `clone3`.
        // SAFETY: without CLONE_VM the child has its own copy of everything, and runs only `child::become_command`, which
        // keeps to calls that are safe after a fork and never returns.
        Memory::Copied => unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) },
        Memory::Lent => child::on_lent_memory(&orders),
    };
    if pid == 0 {
        child::become_command(&orders);
    }
    match i32::try_from(pid).ok().filter(|&pid| pid > 0).and_then(Pid::from_raw) {
        Some(pid) => Ok(Spawned { pid, outcome }),
        None => Err(SpawnError { stage: Stage::Fork, errno: last_errno() }),
    }
}

/// Asks how a start ended. To be called when the descriptor is readable, or when the process is gone: else it waits.
pub fn outcome(of: BorrowedFd<'_>) -> io::Result<Result<(), SpawnError>> {
    let mut message = [0; 5];
    let got = rustix::io::retry_on_intr(|| rustix::io::read(of, &mut message))?;
    let [stage, errno @ ..] = message;
    match got {
        0 => Ok(Ok(())),
        _ => Ok(Err(SpawnError { stage: Stage::from_letter(stage), errno: i32::from_ne_bytes(errno) })),
    }
}

fn null_terminated(texts: &[CString]) -> Vec<*const libc::c_char> {
    texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
}

/// The errno of the last call of the C library. Allocates nothing.
fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::process::{WaitOptions, waitpid};

    use super::*;

    #[test]
    fn a_stage_survives_its_letter() {
        for stage in
            [Stage::Find, Stage::Directory, Stage::Streams, Stage::Fork, Stage::Identity, Stage::Execute]
        {
            assert_eq!(Stage::from_letter(stage.letter()), stage);
        }
    }

    /// Starts it by these paths, and says what became of the start and of the command.
    fn started(memory: Memory, programs: &[&CStr]) -> (Result<(), SpawnError>, Option<i32>) {
        let programs: Vec<CString> = programs.iter().map(|&path| path.into()).collect();
        let [input, output, error] = [0; 3].map(|_| pipe_with(PipeFlags::CLOEXEC).unwrap().1);
        let Spawned { pid, outcome: told } = spawn(&Spawn {
            programs: &programs,
            arguments: &[c"sh".into(), c"-c".into(), c"exit 7".into()],
            environment: &[],
            directory: c"/",
            identity: None,
            streams: [input.as_fd(), output.as_fd(), error.as_fd()],
            terminal: Terminal::None,
            oom_score_adj: None,
            memory,
        })
        .unwrap();
        let told = outcome(told.as_fd()).unwrap();
        let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
        (told, status.exit_status())
    }

    #[test]
    fn a_command_runs_or_says_why_not_on_either_memory() {
        for memory in [Memory::Copied, Memory::Lent] {
            assert_eq!(started(memory, &[c"/nowhere/sh", c"/bin/sh"]), (Ok(()), Some(7)), "{memory:?}");
            let missing = SpawnError { stage: Stage::Find, errno: libc::ENOENT };
            assert_eq!(started(memory, &[c"/nowhere/sh"]), (Err(missing), Some(127)), "{memory:?}");
        }
    }
}
