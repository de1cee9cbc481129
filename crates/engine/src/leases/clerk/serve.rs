//! The clerk's own process: runs the commands that it was told of at its start, each for whoever asks.
//!
//! Trust: the daemon, until it has said that these are all the commands, which it does before its walls stand. Afterwards it can only name
//! them: one that has been taken over has the operator's commands run, which it could anyway, and nothing else.

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
    let mut complete = false;
    let mut buffer = vec![0; LONGEST];
    let running = AtomicUsize::new(0);
    // Each ends when its line does, which is the daemon's to hold: none outlives it.
    thread::scope(|threads| {
        while let Some((length, mut fds)) = post::receive(socket, &mut buffer)? {
            match post::read(buffer.get(..length).unwrap_or_default()) {
                Some(Said::Order { name, argv }) if !complete => {
                    commands.insert(name, argv);
                }
                Some(Said::ThatIsAll) => complete = true,
                Some(Said::Wish { name }) if complete => {
                    let (Some(line), Some(to)) = (fds.pop(), fds.pop()) else { continue };
                    let argv = commands.get(&name).cloned();
                    let room = running.fetch_add(1, Ordering::Relaxed) < MOST;
                    let running = Place(&running);
                    let work = move || {
                        let word = match argv {
                            Some(argv) if room => run(tether, &argv, to, &line),
                            Some(_) => Word::NotStarted(Errno::AGAIN.raw_os_error()),
                            None => Word::NotStarted(Errno::NOENT.raw_os_error()),
                        };
                        // Whoever asked may be gone.
                        UnixStream::from(line).write_all(word.encode().as_bytes()).ok();
                        drop(running);
                    };
                    // Without a thread both ends close, and the daemon learns it by that.
                    thread::Builder::new().stack_size(128 * 1024).spawn_scoped(threads, work).ok();
                }
                // From a daemon that is not what it was: nothing is done for it.
                Some(Said::Order { .. } | Said::Wish { .. }) | None => {}
            }
        }
        Ok(())
    })
}

/// A command that is counted among those that run, until this is dropped, also by a thread that never began.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leases::clerk::post::{Room, order, pair, send, that_is_all, wish};

    /// What a clerk that was told this says to a wish, and what the command prints.
    fn wished(name: &str, told: &[Vec<u8>]) -> (String, String) {
        let (ours, theirs) = pair().unwrap();
        let clerk = thread::spawn(move || serve_commands(&theirs, &["/usr/bin/env".to_owned()]).unwrap());
        told.iter().for_each(|message| send(&ours, message, &[], Room::Awaited).unwrap());
        let (from, to) = io::pipe().unwrap();
        let (line, end) = UnixStream::pair().unwrap();
        send(&ours, &wish(name), &[to.as_fd(), end.as_fd()], Room::Wanted).unwrap();
        drop((to, end));
        let (word, printed) = (io::read_to_string(&line).unwrap(), io::read_to_string(from).unwrap());
        drop(ours);
        clerk.join().unwrap();
        (word, printed)
    }

    #[test]
    fn what_was_said_last_are_all_the_commands_that_there_ever_are() {
        let prints = |name: &str, text: &str| order(name, &["/bin/echo".to_owned(), text.to_owned()]);
        let known = [prints("one", "first"), that_is_all()];
        assert_eq!(wished("one", &known), ("fine".to_owned(), "first\n".to_owned()));
        // Neither another one, nor another word of one.
        let more = [&known[..], &[prints("two", "second"), prints("one", "other")]].concat();
        assert_eq!(wished("one", &more), ("fine".to_owned(), "first\n".to_owned()));
        let unknown = Word::NotStarted(Errno::NOENT.raw_os_error()).encode();
        assert_eq!(wished("two", &more), (unknown, String::new()));
        // Before that nothing is run.
        assert_eq!(wished("one", &known[..1]), (String::new(), String::new()));
    }
}
