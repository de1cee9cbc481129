//! Why a file operation did not succeed, and whose fault it is.

use blastbox_wire::agent::Fault;

use crate::error::{Blame, blame_for};
use crate::outcome::Ending;

/// Why a file operation did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The box says no: its files are not so, or its user may not.
    #[error("the box could not do it: {fault:?} (errno {errno})")]
    Failed {
        /// Why, as one word of a closed list.
        fault: Fault,
        /// Why, as an errno.
        errno: i32,
    },
    /// The box ended first.
    #[error("the box ended before the operation did: {0:?}")]
    BoxEnded(Ending),
}

impl FileError {
    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::Failed { .. } => Blame::Caller,
            Self::BoxEnded(ending) => blame_for(ending),
        }
    }

    /// Why, where the box said so.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Failed { fault, .. } => Some(*fault),
            Self::BoxEnded(_) => None,
        }
    }
}
