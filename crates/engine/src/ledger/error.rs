//! What can go wrong with a ledger, and whose fault it is. Whatever it is, the effect must not happen.

use std::io;
use std::path::PathBuf;

use blastbox_wire::event::ledger_text::LineError;

use super::chain::Fault;
use super::courier::SinkError;
use crate::Blame;

/// Why something is not in the ledger.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The directory cannot be used.
    #[error("cannot use the ledger directory {path}")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another daemon writes it.
    #[error("the ledger {path} is in use by another blastbox; one daemon, one state directory")]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Somebody else could have written it.
    #[error("{path} is not safe to use: {why}")]
    Exposed {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The signing key cannot be read or made.
    #[error("cannot use the ledger's key {path}")]
    Key {
        /// The key file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The ledger is there and its key is not.
    #[error(
        "the key {path} is not the one that signed this ledger; restore it, or move the ledger aside to begin a new one"
    )]
    KeyLost {
        /// Where the key should be.
        path: PathBuf,
    },
    /// No randomness for a key or a name.
    #[error("cannot get randomness for the ledger")]
    Randomness(#[source] io::Error),
    /// A file cannot be read.
    #[error("cannot read {file}")]
    Read {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// What is there is not what was written: nothing may be appended to it.
    #[error(
        "the ledger is damaged at {file}:{line}: {fault}; move it aside to begin a new one, and keep it as evidence"
    )]
    Damaged {
        /// The file.
        file: String,
        /// The line, from 1.
        line: u64,
        /// What is wrong.
        fault: Fault,
    },
    /// The disk or the quota is full. Nothing of the record is left.
    #[error("no space is left for the ledger {file}")]
    DiskFull {
        /// The file.
        file: String,
    },
    /// It could not be written. Nothing of the record is left.
    #[error("cannot write to {file}")]
    Write {
        /// The file.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An earlier failure left it in doubt what is on the disk. The ledger has to be opened again, which finds out.
    #[error("the ledger takes nothing more: an earlier failure left its end in doubt")]
    Stuck,
    /// The record is longer than a line may be.
    #[error("the record cannot be a line of the ledger")]
    Line(#[source] LineError),
    /// Only the ledger itself writes this event.
    #[error("this event is the ledger's own")]
    Reserved,
    /// A sink that must acknowledge has not.
    #[error("the sink {sink} has not acknowledged record {seq}")]
    Unacknowledged {
        /// The sink.
        sink: String,
        /// The record.
        seq: u64,
        /// Why.
        #[source]
        source: SinkError,
    },
}

impl LedgerError {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Directory { .. }
            | Self::InUse { .. }
            | Self::Exposed { .. }
            | Self::Key { .. }
            | Self::KeyLost { .. }
            | Self::Randomness(_)
            | Self::Read { .. }
            | Self::Damaged { .. }
            | Self::DiskFull { .. }
            | Self::Write { .. }
            | Self::Stuck
            | Self::Unacknowledged { .. } => Blame::Host,
            Self::Line(_) | Self::Reserved => Blame::Blastbox,
        }
    }
}
