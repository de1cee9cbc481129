//! What can go wrong between a verb and the daemon.

use std::io;
use std::path::PathBuf;

use blastbox_isolation::ConfineError;
use blastbox_server::outbound::OrderError;
use blastbox_server::{ConfigError, DoorError, KeyError, NotWarm};
use serde::Deserialize;

/// Why a verb did not do what it was told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DaemonProblem {
    #[error("no daemon answers on {socket}")]
    NoDaemon { socket: PathBuf, source: io::Error },
    #[error("the daemon said no: {}", .0.message)]
    No(No),
    #[error("the daemon broke off")]
    BrokeOff(#[source] hyper::Error),
    #[error("the daemon's answer cannot be read")]
    Unreadable(#[source] serde_json::Error),
    #[error("the daemon sent what is no event")]
    BadEvent,
    #[error("the connection to the daemon was lost before the command ended")]
    LostTrack,
    #[error("there is no usual place for the {what}")]
    NoPlace { what: &'static str, fix: &'static str },
    #[error("a request cannot be built")]
    Request(#[from] hyper::http::Error),
    #[error("the argument {0:?} is not text, and the daemon takes only text")]
    NotText(std::ffi::OsString),
    #[error("the box has no command {0}")]
    NoCommand(String),
    #[error("cannot read the configuration {path}")]
    ReadConfig { path: PathBuf, source: io::Error },
    #[error("the configuration {path} is not valid")]
    Config { path: PathBuf, source: ConfigError },
    #[error("neither side of the copy is in a box")]
    NoBox,
    #[error("there is no {0}")]
    NoFile(String),
    #[error("the copy broke off")]
    CopyBroke,
    #[error("cannot read {path}")]
    ReadHost { path: PathBuf, source: io::Error },
    #[error("cannot write to {path}")]
    WriteHost { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Door(#[from] DoorError),
    #[error(transparent)]
    Confine(ConfineError),
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error(transparent)]
    Warm(#[from] NotWarm),
    #[error("cannot open the volumes in the state directory")]
    Volumes(#[source] std::io::Error),
    #[error("cannot open the secrets of tenants in the state directory")]
    Secrets(#[source] std::io::Error),
    #[error("cannot open the modules of tenants in the state directory")]
    Modules(#[source] io::Error),
    #[error("cannot read the module {path}")]
    ReadModule { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// What a daemon says when the answer is no.
#[derive(Debug, Deserialize)]
pub(crate) struct No {
    pub(crate) code: String,
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) fix: Option<String>,
}

impl DaemonProblem {
    /// What to do about it.
    pub(crate) fn fix(&self) -> Option<String> {
        let fix = match self {
            Self::NoDaemon { .. } => {
                "start one with `blastbox serve`, or name its socket with --socket or BLASTBOX_SOCKET"
            }
            Self::No(no) => return no.fix.clone(),
            Self::NoPlace { fix, .. } => fix,
            Self::NoCommand(_) => "see its commands with `blastbox inspect BOX`",
            Self::Door(error) => return error.fix().map(ToOwned::to_owned),
            Self::ReadConfig { .. } | Self::Config { .. } | Self::Order(_) | Self::Warm(_) => {
                "see docs/api.md for every key"
            }
            Self::Key(KeyError::Taken(_)) => {
                "choose another name, or remove that one with `blastbox key rm NAME`"
            }
            Self::Key(KeyError::Unknown(_)) => "see all with `blastbox key ls`",
            Self::NoBox => "write a path in a box as BOX:PATH",
            Self::NoFile(_) => {
                "a relative path begins where the box's commands start: /workspace, in a box without one /home/user"
            }
            Self::WriteHost { source, .. } if source.kind() == io::ErrorKind::FileTooLarge => {
                "raise --limit, if the box should be believed"
            }
            Self::Volumes(_) => "look at `e2b/volumes` there, or leave [e2b.volumes] out",
            Self::Secrets(_) => "look at `e2b/secrets` there, or write `enabled = false` under [e2b.secrets]",
            Self::Modules(_) => "look at `modules` there, or write `enabled = false` under [modules]",
            Self::ReadModule { .. } => "name a file that you may read",
            Self::Confine(_)
            | Self::CopyBroke
            | Self::ReadHost { .. }
            | Self::WriteHost { .. }
            | Self::BrokeOff(_)
            | Self::Unreadable(_)
            | Self::BadEvent
            | Self::LostTrack
            | Self::Request(_)
            | Self::NotText(_)
            | Self::Key(_) => return None,
        };
        Some(fix.to_owned())
    }
}
