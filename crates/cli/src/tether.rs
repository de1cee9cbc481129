//! `blastbox tether`: becomes another program that ends when whoever started it does, however that ends.
//!
//! For `blastbox escape`, whose controls are plain processes. The kernel sends the signal; it stays asked for when this
//! process becomes the program. It reaches that process alone: for the commands of secrets, which may start others, this one
//! stays beside the program, and ends the group of both.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::Command;

use clap::Args;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpgrp, getpid, getppid, kill_process_group, pidfd_open,
    set_parent_process_death_signal,
};

use crate::problem::Problem;

#[derive(Debug, Args)]
pub(crate) struct TetherArgs {
    /// The process id of whoever starts this
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// Be asked to end (TERM) instead of being ended (KILL)
    #[arg(long)]
    gently: bool,
    /// End its process group, too, which this process leads
    #[arg(long, conflicts_with = "gently")]
    group: bool,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "it starts nothing: it becomes what its caller could have started"
)]
pub(crate) fn tether(args: TetherArgs) -> Result<u8, Problem> {
    let TetherArgs { parent, gently, group, command } = args;
    let signal = if gently { Signal::TERM } else { Signal::KILL };
    let mut words = command.into_iter();
    let program = words.next().ok_or(Problem::NoCommand { usual: None })?;
    let failed = |source| Problem::Tether { program: program.clone().into(), source };
    // Opened before it is asked who the parent is: that one was there then, and is watched.
    let watched = pidfd_open(pid(parent)?, PidfdFlags::empty());
    if !group {
        set_parent_process_death_signal(Some(signal)).map_err(|error| failed(error.into()))?;
    }
    // Whoever ended before that sends nothing any more.
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if now != Some(parent) {
        return Err(Problem::Untethered { parent });
    }
    let mut command = Command::new(&program);
    command.args(words);
    if group {
        let watched = watched.map_err(|error| failed(error.into()))?;
        return beside(command, &watched).map_err(failed);
    }
    Err(failed(command.exec()))
}

fn pid(number: u32) -> Result<Pid, Problem> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.ok_or(Problem::Untethered { parent: number })
}

/// Waits for the command, or for the end of whoever started this process: then nothing of the group is left.
fn beside(mut command: Command, parent: &OwnedFd) -> io::Result<u8> {
    // Another's group would be ended with whoever else is in it.
    if getpgrp() != getpid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut child = command.spawn()?;
    // What it reads and prints is the command's alone.
    drop(command);
    let child_pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::NotFound)?;
    let process = pidfd_open(child_pid, PidfdFlags::empty())?;
    let [mut ended, mut orphaned] = [&process, parent].map(|fd| PollFd::new(fd, PollFlags::IN));
    while ended.revents().is_empty() && orphaned.revents().is_empty() {
        let mut looked = [ended, orphaned];
        rustix::io::retry_on_intr(|| poll(&mut looked, None))?;
        [ended, orphaned] = looked;
    }
    if !orphaned.revents().is_empty() {
        // With this process.
        kill_process_group(getpid(), Signal::KILL)?;
    }
    let status = child.wait()?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}
