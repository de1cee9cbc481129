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

/// `128 + SIGPIPE`, as a shell would say it: whoever read what is printed went away.
pub(crate) const READER_GONE: u8 = 141;
/// As much as a pipe that says it has room takes without waiting (`PIPE_BUF`).
const SURE: usize = 4096;

/// Why a result did not get out whole.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OutputError {
    #[error("cannot write to {}", name(*.stream))]
    Write { stream: Stream, source: io::Error },
    #[error("cannot write JSON")]
    Json(#[from] serde_json::Error),
}

/// Whether somebody still reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    There,
    Gone,
}

fn name(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "standard output",
        Stream::Stderr => "standard error",
    }
}

/// Holds what became of a write apart: a reader that went away has seen enough, and any other end is an error.
fn judge(stream: Stream, written: io::Result<()>) -> Result<Reader, OutputError> {
    match written {
        Ok(()) => Ok(Reader::There),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(source) => Err(OutputError::Write { stream, source }),
    }
}

/// A piece of output on its way.
#[derive(Debug)]
pub(crate) struct Writing {
    stream: Stream,
    done: oneshot::Receiver<io::Result<()>>,
}

impl Writing {
    /// Waits until it is written, or cannot be. Cancel safe.
    pub(crate) async fn end(&mut self) -> Result<Reader, OutputError> {
        let no_thread = || Err(io::Error::other("the thread that writes could not be started"));
        judge(self.stream, (&mut self.done).await.unwrap_or_else(|_| no_thread()))
    }
}

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
    /// Begins to write; the answer comes when it is written, or cannot be.
    pub(crate) fn write(&mut self, stream: Stream, bytes: Vec<u8>) -> Writing {
        let (done, wait) = oneshot::channel();
        let wait = Writing { stream, done: wait };
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

/// Prints a result on standard output. A reader that went away has seen enough; a disk that is full has not.
pub(crate) fn print(text: &str) -> Result<(), OutputError> {
    print_on(text).map(|_| ())
}

/// The same for what goes on and on, which ends when nobody reads it.
pub(crate) fn print_on(text: &str) -> Result<Reader, OutputError> {
    print_bytes(text.as_bytes())
}

/// Prints a value as JSON on standard output.
pub(crate) fn print_json<T: serde::Serialize>(value: &T) -> Result<(), OutputError> {
    print_bytes(&json(value)?).map(|_| ())
}

fn print_bytes(bytes: &[u8]) -> Result<Reader, OutputError> {
    judge(Stream::Stdout, write_all(rustix::stdio::stdout(), bytes))
}

/// A value as JSON, as it is printed.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, serde_json::Error> {
    let mut text = String::new();
    for letter in serde_json::to_string_pretty(value)?.chars() {
        match letter {
            // A box chooses names. What a terminal obeys, or is read backwards by, JSON leaves as it is: it stands in texts alone.
            '\u{7f}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            letter => text.push(letter),
        }
    }
    text.push('\n');
    Ok(text.into_bytes())
}

/// A word as a shell takes it.
pub(crate) fn shell_word(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte);
    match word.bytes().all(plain) && !word.is_empty() {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Text from elsewhere, safe to show: no control character reaches the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_in_json_reaches_a_terminal_as_something_to_obey() {
        let name = "a\u{61c}\u{9b}2J\u{1b}[31m\u{202e}\u{2066}\u{7f}ü";
        let text = json(&serde_json::json!({ "path": name })).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.chars().all(|letter| letter == '\n' || letter == 'ü' || (' '..='~').contains(&letter)),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["path"], name);
    }

    #[test]
    fn a_word_that_is_advised_is_one_word_for_a_shell() {
        assert_eq!((shell_word("a/b.c").as_str(), shell_word("").as_str()), ("a/b.c", "''"));
        assert_eq!(shell_word("it's $x"), r"'it'\''s $x'");
    }

    #[test]
    fn a_reader_that_went_away_is_no_error_and_a_full_disk_is() {
        let judged = |errno: Errno| judge(Stream::Stdout, Err(errno.into()));
        assert_eq!(judge(Stream::Stdout, Ok(())).unwrap(), Reader::There);
        assert_eq!(judged(Errno::PIPE).unwrap(), Reader::Gone);
        for errno in [Errno::NOSPC, Errno::IO, Errno::DQUOT, Errno::BADF] {
            assert!(matches!(judged(errno), Err(OutputError::Write { .. })), "{errno}");
        }
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let said = judge(Stream::Stderr, write_all(std::os::fd::AsFd::as_fd(&full), b"x")).unwrap_err();
        assert_eq!(said.to_string(), "cannot write to standard error");
        assert!(blastbox_engine::causes(&said).contains("No space left"), "{said:?}");
    }

    #[test]
    fn an_escape_sequence_does_not_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb"), "a\\u{1b}[2Jb");
        assert_eq!(plain("ä ✓"), "ä ✓");
    }
}
