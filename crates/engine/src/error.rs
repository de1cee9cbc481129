//! What can go wrong in this room, and whose fault it is.

use std::io;
use std::path::PathBuf;

use blastbox_isolation::{Choice, GatewayError, WardenError};
use blastbox_policy::Refusal;

use crate::leases::MintError;
use crate::outcome::{Ending, Loss};

/// Whose fault it is. The single input for exit codes, statuses and alerts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// Whoever asked.
    Caller,
    /// What runs in the box.
    Guest,
    /// The machine or its configuration.
    Host,
    /// We.
    Blastbox,
}

/// An error and all its causes in one line.
#[must_use]
pub fn causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The warden could not be started.
    #[error("cannot start the warden")]
    Warden(#[source] WardenError),
    /// The warden cannot be listened to.
    #[error("cannot watch the warden's socket")]
    Watch(#[source] io::Error),
}

impl EngineError {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Warden(_) | Self::Watch(_) => Blame::Host,
        }
    }
}

/// Why there is no box.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// blastbox worked, and the answer is no.
    #[error("refused: {refusal}")]
    Refused {
        /// Why.
        refusal: Refusal,
        /// Everything that was weighed.
        choice: Box<Choice>,
    },
    /// No channel to the agent could be made.
    #[error("cannot make the channel to the agent")]
    Channel(#[source] io::Error),
    /// What the tier shows of the host could not be opened.
    #[error("cannot open {path} for the box", path = path.display())]
    Show {
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No name could be made.
    #[error("cannot get randomness for the name of the box")]
    Randomness(#[source] io::Error),
    /// The warden could not be asked.
    #[error("cannot ask the warden for a box")]
    Ask(#[source] WardenError),
    /// The box's gateway could not be had. There is no box without it.
    #[error("cannot give the box its gateway")]
    Gateway(#[source] GatewayError),
    /// A secret of the box's policy could not be had. There is no box without it.
    #[error("cannot lend the box its secrets")]
    Secret(#[source] MintError),
    /// The snapshot that it should begin with is bound to another machine.
    #[error("the snapshot is bound to another machine")]
    Foreign,
    /// The box ended before it was ready.
    #[error("the box was not ready before it ended: {0:?}")]
    NotReady(Ending),
}

impl CreateError {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Refused { .. } | Self::Foreign => Blame::Caller,
            Self::Channel(_) | Self::Show { .. } | Self::Randomness(_) | Self::Ask(_) | Self::Gateway(_) => {
                Blame::Host
            }
            Self::Secret(error) => error.blame(),
            Self::NotReady(ending) => blame_for(ending),
        }
    }
}

/// Whose fault an ending is, where it is anybody's.
pub(crate) fn blame_for(ending: &Ending) -> Blame {
    match ending {
        Ending::Exited(_)
        | Ending::TimedOut
        | Ending::OutputSpent
        | Ending::Lost(Loss::GuestLied(_) | Loss::AgentGone | Loss::AgentGaveUp(_) | Loss::NeverSpoke(_)) => {
            Blame::Guest
        }
        Ending::NotStarted { .. }
        | Ending::Interrupted { .. }
        | Ending::Dismissed
        | Ending::ReaderGone
        | Ending::Refused(_) => Blame::Caller,
        Ending::LaunchFailed { .. }
        | Ending::Lost(Loss::WardenGone | Loss::NotReleased | Loss::NotUndone(_)) => Blame::Host,
    }
}

/// Why a directory cannot be a workspace. All of it is for whoever named the directory.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// It is not there, or may not be read.
    #[error("cannot open the workspace {path}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("the workspace {path} is not a directory")]
    NotADirectory {
        /// What was named.
        path: PathBuf,
    },
    /// It is the whole host.
    #[error("the workspace {path} is the root of this host; name the one directory that the box should see")]
    HostRoot {
        /// What was named.
        path: PathBuf,
    },
}

impl WorkspaceError {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Open { .. } | Self::NotADirectory { .. } | Self::HostRoot { .. } => Blame::Caller,
        }
    }
}

/// The box or the command is over, and takes nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the command is over")]
pub struct Over;

/// Why a box could not be paused or go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PauseError {
    /// It is in no state for that: not there yet, ending, paused already, or not paused.
    #[error("the box is {0:?}")]
    NotNow(crate::state::State),
    /// The host could not do it.
    #[error("cannot {tried}{}", because(*errno))]
    Host {
        /// What was tried last.
        tried: String,
        /// Why it did not work, as an errno.
        errno: i32,
    },
    /// The warden has not answered in time. When it does, what it did is undone: the box is as it was.
    #[error("the warden has not answered within {} s; what it does later is undone", .0.as_secs())]
    Unanswered(std::time::Duration),
    /// The box ended meanwhile.
    #[error("the box ended meanwhile")]
    Over,
}

/// The kernel's words for an errno, without Rust's `(os error N)`.
pub(crate) fn errno_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// The same as the end of a sentence; nothing where no system call failed, and what was tried says it all.
pub(crate) fn because(errno: i32) -> String {
    if errno == 0 { String::new() } else { format!(": {}", errno_text(errno)) }
}
