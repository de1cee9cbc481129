//! The clerk: a process of the daemon's own that runs the commands of secrets, and nothing else.
//!
//! A daemon behind its walls starts no program. So before they stand it starts this one, tells it the operator's commands once, and from
//! then on asks for them by the name of their secret: nothing that comes later, least of all through the API, adds a command or changes a
//! word of one. What a command prints goes through a pipe to the daemon and never through the clerk.
//!
//! ```text
//! daemon ── name, the pipe to print to, a line ──▶ clerk ──▶ command
//!   ▲                                                           │ the secret
//!   └───────────────────────────── pipe ────────────────────────┘
//! ```
//! The line tells how the command ended; the daemon's end of it closed, the command is killed with its process group. When the daemon is
//! gone, however it went, so are the clerk and what runs.

mod post;
mod serve;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use blastbox_policy::SecretName;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use zeroize::Zeroizing;

use self::post::Room;
pub use self::serve::serve_commands;
use super::command::{KEPT, LONGEST_OUTPUT};
use super::error::MintError;

/// How long a clerk may take to end after its socket has closed.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest word on a line.
const LONGEST_WORD: u64 = 256;

/// What a daemon holds of its clerk. Dropped, the clerk ends.
#[derive(Debug)]
pub(super) struct Clerk {
    socket: OwnedFd,
    child: Child,
}

/// How a command ended, or why it never began.
#[derive(Debug, PartialEq, Eq)]
enum Word {
    Fine,
    /// The number of the kernel's error.
    NotStarted(i32),
    /// In words.
    Failed(String),
}

impl Word {
    fn encode(&self) -> String {
        match self {
            Self::Fine => "fine".to_owned(),
            Self::NotStarted(errno) => format!("not started {errno}"),
            Self::Failed(status) => format!("failed {status}"),
        }
    }

    /// `None`: it is no word, as from a clerk that was killed.
    fn decode(text: &str) -> Option<Self> {
        match (text, text.strip_prefix("not started "), text.strip_prefix("failed ")) {
            ("fine", ..) => Some(Self::Fine),
            (_, Some(errno), _) => errno.parse().ok().map(Self::NotStarted),
            (_, _, Some(status)) => Some(Self::Failed(status.to_owned())),
            _ => None,
        }
    }
}

impl Clerk {
    /// Starts one that knows these commands. `program` and `words` begin [`serve_commands`], with the socket as standard input.
    #[expect(clippy::disallowed_methods, reason = "this very program once more, before its walls stand")]
    pub(super) fn start<'c>(
        program: &Path,
        words: &[&str],
        commands: impl Iterator<Item = (&'c SecretName, &'c [String])>,
    ) -> io::Result<Self> {
        let (socket, theirs) = post::pair()?;
        let mut command = Command::new(program);
        // In a group of its own: a terminal's interrupt is the daemon's to act upon.
        command.args(words).env_clear().envs(kept()).process_group(0);
        command.stdin(theirs).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn()?;
        // Its end of the socket is still in there.
        drop(command);
        let clerk = Self { socket, child };
        for (name, argv) in commands {
            post::send(&clerk.socket, &post::order(name.as_str(), argv), &[], Room::Awaited)?;
        }
        // Said while this process is still to be believed: whoever takes it over later adds nothing.
        post::send(&clerk.socket, &post::that_is_all(), &[], Room::Awaited)?;
        Ok(clerk)
    }

    /// Runs the command of a secret; what it printed, as far as anybody could want it.
    pub(super) async fn run(
        &self,
        secret: &SecretName,
        program: &Path,
    ) -> Result<Zeroizing<Vec<u8>>, MintError> {
        let gone = |source| MintError::NoClerk { secret: secret.clone(), source };
        let (from, to) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|errno| gone(errno.into()))?;
        let (line, theirs) = StdStream::pair().map_err(gone)?;
        line.set_nonblocking(true).map_err(gone)?;
        let mut line = UnixStream::from_std(line).map_err(gone)?;
        let printed = pipe::Receiver::from_owned_fd(from).map_err(gone)?;
        let with = [to.as_fd(), theirs.as_fd()];
        post::send(&self.socket, &post::wish(secret.as_str()), &with, Room::Wanted).map_err(gone)?;
        // Theirs alone from now on: each ends when they let it go.
        drop((to, theirs));
        let most = LONGEST_OUTPUT + 1;
        let mut output = Zeroizing::new(Vec::with_capacity(2 * most));
        printed.take(u64::try_from(most).unwrap_or(u64::MAX)).read_to_end(&mut output).await.map_err(gone)?;
        if output.len() == most {
            // Dropped, the line ends it.
            return Err(MintError::Size(secret.clone()));
        }
        let mut word = String::new();
        (&mut line).take(LONGEST_WORD).read_to_string(&mut word).await.map_err(gone)?;
        match Word::decode(&word) {
            Some(Word::Fine) => Ok(output),
            Some(Word::NotStarted(errno)) => Err(MintError::Start {
                secret: secret.clone(),
                program: program.to_owned(),
                source: io::Error::from_raw_os_error(errno),
            }),
            Some(Word::Failed(status)) => {
                Err(MintError::Failed { secret: secret.clone(), program: program.to_owned(), status })
            }
            None => Err(gone(io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// Variables that a command may need to work at all.
fn kept() -> impl Iterator<Item = (&'static str, std::ffi::OsString)> {
    KEPT.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)))
}

impl Drop for Clerk {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both).ok();
        let bound = Timespec { tv_sec: i64::try_from(PATIENCE.as_secs()).unwrap_or(2), tv_nsec: 0 };
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let ended = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()).is_some_and(|process| {
            let mut looked = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
            rustix::io::retry_on_intr(|| poll(&mut looked, Some(&bound))).is_ok_and(|count| count > 0)
        });
        if !ended {
            self.child.kill().ok();
        }
        self.child.wait().ok();
    }
}
