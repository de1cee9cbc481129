//! Ended processes. The agent is the parent of last resort in its box: it waits for its own commands and for every
//! process whose parent is gone.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_sys::spawn::{self, Dead, Patience};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::harden;

/// Processes that are waited for in one turn of the loop: one who leaves thousands behind does not stop it.
pub(crate) const MOST_IN_A_TURN: usize = 256;
/// Rounds of killing what was left behind, where the agent is not first. Each round kills a whole generation.
const GENERATIONS: usize = 64;

/// Hears of ended processes.
#[derive(Debug)]
pub(crate) struct Reaper {
    signals: OwnedFd,
    more: bool,
}

impl Reaper {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { signals: spawn::watch_children()?, more: false })
    }

    /// One process that has ended, and is no more.
    pub(crate) fn next(&mut self) -> Option<Dead> {
        let dead = spawn::reap(Patience::Look);
        self.more = dead.is_some();
        dead
    }

    /// Whether there may be more to wait for, though no signal will say so.
    pub(crate) fn has_more(&self) -> bool {
        self.more
    }

    /// Takes the signal off the descriptor. One signal stands for any number of ends: take it first, then look, or an
    /// end in between is never seen.
    pub(crate) fn quiet(&mut self) {
        let mut signal = [0; 128];
        while !matches!(rustix::io::read(&self.signals, &mut signal), Ok(0) | Err(Errno::AGAIN)) {}
        self.more = true;
    }
}

impl AsFd for Reaper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

/// Ends every process of the box, and returns when all of them are gone.
pub(crate) fn end_everything(commands: impl Iterator<Item = Pid>) {
    if harden::is_first() {
        // Nobody left to kill is what we want.
        spawn::kill_everything().ok();
        while spawn::reap(Patience::Wait).is_some() {}
        return;
    }
    for leader in commands {
        spawn::signal_group(leader, 9).ok();
    }
    // Whoever left its group comes to the agent when its parents are gone.
    for _ in 0..GENERATIONS {
        let children = children();
        for &child in &children {
            rustix::process::kill_process(child, Signal::KILL).ok();
        }
        if children.iter().filter_map(|_| spawn::reap(Patience::Wait)).count() == 0 {
            return;
        }
    }
}

fn children() -> Vec<Pid> {
    let me = rustix::process::getpid().as_raw_nonzero();
    let list = std::fs::read_to_string(format!("/proc/self/task/{me}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw).collect()
}
