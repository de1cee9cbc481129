//! What can go wrong between us and the warden.

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use blastbox_wire::CodecError;

use super::{BUSY, PROGRAM};

/// What went wrong between us and the warden.
#[derive(Debug, thiserror::Error)]
pub enum WardenError {
    /// We do not know where we are.
    #[error("cannot find the directory of this program, to look for {PROGRAM} beside it")]
    Whereabouts(#[source] io::Error),
    /// The program is not installed.
    #[error("{PROGRAM} is not installed: looked for {}", list(.looked_for))]
    NotInstalled {
        /// Where it was looked for.
        looked_for: Vec<PathBuf>,
    },
    /// It could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is about to be started could not be written down first.
    #[error("the warden is not started, because that cannot be recorded")]
    NotRecorded(#[source] io::Error),
    /// A message could not be sent.
    #[error("cannot send a message to the warden")]
    Send(#[source] io::Error),
    /// A message could not be received.
    #[error("cannot receive a message from the warden")]
    Receive(#[source] io::Error),
    /// It does not read what it is sent.
    #[error("the warden has not read its messages for {} s", BUSY.as_secs())]
    Busy,
    /// It sent something that is no answer.
    #[error("the warden sent something that cannot be read; is it of another version?")]
    Garbled(#[source] CodecError),
    /// It answered before it was asked.
    #[error("the warden began with something else than its powers")]
    OutOfTurn,
    /// It ended before it was ready.
    #[error("the warden ended before it was ready{}", how(.status))]
    Ended {
        /// How it ended, where that is known.
        status: Option<ExitStatus>,
    },
    /// It did not get ready in time.
    #[error("the warden was not ready after {} ms", .0.as_millis())]
    NotReady(Duration),
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(" and ")
}

fn how(status: &Option<ExitStatus>) -> String {
    status.map(|status| format!(" ({status})")).unwrap_or_default()
}
