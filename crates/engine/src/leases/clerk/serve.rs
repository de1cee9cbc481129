//! The clerk's own process: runs the commands that it was told of at its start, each for whoever asks.
//!
//! Trust: the daemon, before its walls stood. Afterwards it can only name commands: one that has been taken over has the operator's
//! commands run, which it could anyway, and nothing else.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Access, access};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::post::{self, LONGEST, Said};
use super::{Word, kept};

/// Commands at the same time. A daemon runs one for each box that it makes.
const MOST: usize = 256;

/// Runs commands until the daemon is gone. `tether` comes in front of each: it becomes the command, and ends with this process.
pub fn serve_commands(socket: &OwnedFd, tether: &[String]) -> io::Result<()> {
    let mut commands: HashMap<String, Vec<String>> = HashMap::new();
    let mut begun = false;
    let mut buffer = vec![0; LONGEST];
    let running = AtomicUsize::new(0);
    // Each ends when its line does, which is the daemon's to hold: none outlives it.
    thread::scope(|threads| {
        while let Some((length, mut fds)) = post::receive(socket, &mut buffer)? {
            match post::read(buffer.get(..length).unwrap_or_default()) {
                Some(Said::Order { name, argv }) if !begun => {
                    commands.insert(name, argv);
                }
                Some(Said::Wish { name }) => {
                    // From the first wish on no other command becomes known.
                    begun = true;
                    let (Some(line), Some(to)) = (fds.pop(), fds.pop()) else { continue };
                    let argv = commands.get(&name).cloned();
                    let room = running.fetch_add(1, Ordering::Relaxed) < MOST;
                    let running = &running;
                    let work = move || {
                        let word = match argv {
                            Some(argv) if room => run(tether, &argv, to, &line),
                            Some(_) => Word::NotStarted(Errno::AGAIN.raw_os_error()),
                            None => Word::NotStarted(Errno::NOENT.raw_os_error()),
                        };
                        // Whoever asked may be gone.
                        UnixStream::from(line).write_all(word.encode().as_bytes()).ok();
                        running.fetch_sub(1, Ordering::Relaxed);
                    };
                    // Without a thread both ends close, and the daemon learns it by that.
                    thread::Builder::new().stack_size(128 * 1024).spawn_scoped(threads, work).ok();
                }
                Some(Said::Order { .. }) | None => {}
            }
        }
        Ok(())
    })
}

fn run(tether: &[String], argv: &[String], to: OwnedFd, line: &OwnedFd) -> Word {
    let not = |error: io::Error| Word::NotStarted(error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()));
    let program = PathBuf::from(argv.first().map(String::as_str).unwrap_or_default());
    // Only to say why: what is in front of it would say less.
    if let Err(errno) = access(&program, Access::EXEC_OK) {
        return not(errno.into());
    }
    let mut words = tether.iter().chain(argv);
    #[expect(
        clippy::disallowed_methods,
        reason = "the operator's own program, named in the operator's own file"
    )]
    let mut command = Command::new(words.next().map(String::as_str).unwrap_or_default());
    command.args(words).env_clear().envs(kept()).process_group(0);
    command.stdin(Stdio::null()).stdout(to).stderr(Stdio::null());
    let spawned = command.spawn();
    // With the pipe that it prints to.
    drop(command);
    match spawned {
        Ok(child) => waited(child, line).unwrap_or_else(not),
        Err(error) => not(error),
    }
}

/// Waits for its end, or ends it when nobody waits for it any more.
fn waited(mut child: Child, line: &OwnedFd) -> io::Result<Word> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
    let watched = pidfd_open(pid, PidfdFlags::empty()).and_then(|process| {
        let mut looked = [
            PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(line.as_fd(), PollFlags::RDHUP),
        ];
        rustix::io::retry_on_intr(|| poll(&mut looked, None))
    });
    // It is over, nobody waits, or neither can be seen. What it started goes with it; it is not waited for yet, so the number is its own.
    kill_process_group(pid, Signal::KILL).ok();
    let status = child.wait()?;
    watched?;
    Ok(if status.success() { Word::Fine } else { Word::Failed(status.to_string()) })
}
