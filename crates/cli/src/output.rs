//! The only room that writes to the terminal.
//!
//! What a box prints goes through a thread of its own, so that a reader that stalls holds up neither the clock of the box
//! nor our end: nothing ever waits for that thread. The descriptors are shared with other processes, so they are never
//! switched to non-blocking.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Sender, channel};
use std::thread;

use blastbox_engine::Stream;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat};
use rustix::io::{Errno, write};
use tokio::sync::oneshot;

/// As much as a pipe that says it has room takes without waiting (`PIPE_BUF`).
const SURE: usize = 4096;

/// Writes what a box prints.
#[derive(Debug, Default)]
pub(crate) struct Printer {
    thread: Option<Sender<Job>>,
}

#[derive(Debug)]
struct Job {
    stream: Stream,
    bytes: Vec<u8>,
    done: oneshot::Sender<io::Result<()>>,
}

fn descriptor(stream: Stream) -> BorrowedFd<'static> {
    match stream {
        Stream::Stdout => rustix::stdio::stdout(),
        Stream::Stderr => rustix::stdio::stderr(),
    }
}

impl Printer {
    /// Begins to write; the answer comes when it is written, or nobody reads any more.
    pub(crate) fn write(&mut self, stream: Stream, bytes: Vec<u8>) -> oneshot::Receiver<io::Result<()>> {
        let (done, wait) = oneshot::channel();
        if is_regular(stream) {
            done.send(write_all(descriptor(stream), &bytes)).ok();
            return wait;
        }
        let to = self.thread.get_or_insert_with(start);
        // A thread that could not be started drops the job, and with it `done`: the caller sees a closed output.
        to.send(Job { stream, bytes, done }).ok();
        wait
    }
}

fn start() -> Sender<Job> {
    let (to, jobs) = channel::<Job>();
    let work = move || {
        for Job { stream, bytes, done } in jobs {
            done.send(write_all(descriptor(stream), &bytes)).ok();
        }
    };
    // Not joined: when we end, it ends, whatever it waits for.
    drop(thread::Builder::new().name("printer".to_owned()).stack_size(64 * 1024).spawn(work));
    to
}

fn is_regular(stream: Stream) -> bool {
    fstat(descriptor(stream))
        .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::RegularFile)
}

fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match write(to, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            // Somebody else has switched it to non-blocking: wait for room as if nobody had.
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None).ok();
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// Says something on standard error, at the end of a run: a reader that stalls loses it rather than holding us up.
pub(crate) fn say_last(text: &str) {
    let to = rustix::stdio::stderr();
    let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
    for piece in text.as_bytes().chunks(SURE) {
        let room = poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], Some(&patience));
        if room != Ok(1) || write_all(to, piece).is_err() {
            return;
        }
    }
}

/// Says something on standard error.
pub(crate) fn say(text: &str) {
    // Nobody is left to tell that standard error is closed.
    write_all(rustix::stdio::stderr(), text.as_bytes()).ok();
}

/// Prints a result on standard output. A reader that went away has seen enough.
pub(crate) fn print(text: &str) {
    write_all(rustix::stdio::stdout(), text.as_bytes()).ok();
}

/// Prints a value as JSON on standard output.
pub(crate) fn print_json<T: serde::Serialize>(value: &T) -> Result<(), serde_json::Error> {
    write_all(rustix::stdio::stdout(), &json(value)?).ok();
    Ok(())
}

/// A value as JSON, as it is printed.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    Ok(text)
}

/// Text from elsewhere, safe to show: no control character reaches the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_escape_sequence_does_not_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(plain("ä ✓"), "ä ✓");
    }
}
