//! The process of a warden: a child of ours, or one that somebody else has started.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use super::mark::Mark;
use super::ready;

/// The process of a warden.
#[derive(Debug)]
pub(super) enum Process {
    /// A child of this process.
    Ours(Own),
    /// Another's, held so that its number cannot become somebody else's.
    Theirs {
        /// Its number.
        pid: u32,
        /// It.
        handle: OwnedFd,
    },
}

/// A child of this process. Whoever started it: one that was started before the C library is no [`std::process::Child`].
#[derive(Debug)]
pub(super) struct Own {
    pid: Pid,
    /// How it ended, once it was collected. From then on its number may be another's.
    status: Option<ExitStatus>,
}

impl Own {
    pub(super) fn new(pid: Pid) -> Self {
        Self { pid, status: None }
    }

    /// How it ended, if it has.
    fn look(&mut self) -> Option<ExitStatus> {
        self.collect(WaitOptions::NOHANG)
    }

    /// Waits until it ends, and tells how it did.
    pub(super) fn wait(&mut self) -> Option<ExitStatus> {
        self.collect(WaitOptions::empty())
    }

    fn collect(&mut self, how: WaitOptions) -> Option<ExitStatus> {
        while self.status.is_none() {
            match waitpid(Some(self.pid), how) {
                Ok(ended) => {
                    self.status = Some(ExitStatus::from_raw(ended?.1.as_raw()));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        self.status
    }

    pub(super) fn kill(&self) {
        if self.status.is_none() {
            kill_process(self.pid, Signal::KILL).ok();
        }
    }
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
    hold(pid)
}

fn hold(pid: Pid) -> io::Result<OwnedFd> {
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

impl Process {
    /// One that somebody else has started, if it is still that one.
    pub(super) fn of(mark: Mark) -> io::Result<Self> {
        let handle = open(mark.pid)?;
        // Looked at after it is held: from here on its number cannot become another's.
        if !mark.is_there() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Self::Theirs { pid: mark.pid, handle })
    }

    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Ours(child) => child.pid.as_raw_nonzero().get().unsigned_abs(),
            Self::Theirs { pid, .. } => *pid,
        }
    }

    /// How it ended, where that is ours to know.
    pub(super) fn status(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Ours(child) => child.look(),
            Self::Theirs { .. } => None,
        }
    }

    /// Whether it ends in this time.
    pub(super) fn ended_within(&mut self, patience: Duration) -> bool {
        let wait = |handle: &OwnedFd| ready(handle.as_fd(), PollFlags::IN, patience).unwrap_or(false);
        match self {
            // Once it was collected its number may be another's.
            Self::Ours(child) => child.look().is_some() || hold(child.pid).is_ok_and(|handle| wait(&handle)),
            Self::Theirs { handle, .. } => wait(handle),
        }
    }
}
