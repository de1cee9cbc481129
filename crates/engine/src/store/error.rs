//! What can go wrong with the store, and whose fault it is.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;

use crate::Blame;

/// Why something is not in the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file cannot be opened or made.
    #[error("cannot open the store {path}")]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It may be read, not written.
    #[error(
        "the store {path} is read-only; mount the state directory writable, or name another with --state-dir"
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The disk, or its quota, is full.
    #[error("the disk under the store {path} is full; make room, and what was refused can be asked again")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// What is in it cannot be trusted.
    #[error(
        "the store {path} is damaged ({why}); move it aside and start again: what it knew of is released by name, \
         and no box goes on"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite found.
        why: String,
    },
    /// Another program's file, or none of SQLite's.
    #[error("{path} is not a store of blastbox; move it aside, or name another directory with --state-dir")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later blastbox wrote it.
    #[error("the store {path} has version {found}, and this blastbox knows {known}; start the newer one")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// Another daemon has it open.
    #[error("the store {path} is in use by another blastbox; one daemon, one state directory")]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// Anything else.
    #[error("cannot {tried} in the store {path}")]
    Failed {
        /// What was tried.
        tried: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        source: rusqlite::Error,
    },
}

impl StoreError {
    /// Whose fault it is.
    #[must_use]
    pub const fn blame(&self) -> Blame {
        match self {
            Self::Open { .. }
            | Self::ReadOnly { .. }
            | Self::Full { .. }
            | Self::Damaged { .. }
            | Self::Foreign { .. }
            | Self::Newer { .. }
            | Self::InUse { .. }
            | Self::Failed { .. } => Blame::Host,
        }
    }

    pub(super) fn of(tried: &'static str, path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(ErrorCode::ReadOnly) => Self::ReadOnly { path },
            Some(ErrorCode::DiskFull) => Self::Full { path },
            Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path, why: source.to_string() },
            Some(ErrorCode::NotADatabase) => Self::Foreign { path },
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::InUse { path },
            _ => Self::Failed { tried, path, source },
        }
    }
}
