//! The process of a warden: a child of ours, or one that somebody else has started.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::mark::Mark;
use super::ready;

/// The process of a warden.
#[derive(Debug)]
pub(super) enum Process {
    /// A child of this process.
    Ours(Child),
    /// Another's, held so that its number cannot become somebody else's.
    Theirs {
        /// Its number.
        pid: u32,
        /// It.
        handle: OwnedFd,
    },
}

fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidInput)?;
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
            Self::Ours(child) => child.id(),
            Self::Theirs { pid, .. } => *pid,
        }
    }

    /// How it ended, where that is ours to know.
    pub(super) fn status(&mut self) -> Option<ExitStatus> {
        match self {
            Self::Ours(child) => child.try_wait().ok().flatten(),
            Self::Theirs { .. } => None,
        }
    }

    /// Whether it ends in this time.
    pub(super) fn ended_within(&mut self, patience: Duration) -> bool {
        let wait = |handle: &OwnedFd| ready(handle.as_fd(), PollFlags::IN, patience).unwrap_or(false);
        match self {
            // Once it was collected its number may be another's.
            Self::Ours(child) => {
                matches!(child.try_wait(), Ok(Some(_))) || open(child.id()).is_ok_and(|handle| wait(&handle))
            }
            Self::Theirs { handle, .. } => wait(handle),
        }
    }
}
