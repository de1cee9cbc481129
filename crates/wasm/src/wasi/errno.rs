//! The errors of WASI, as many as we have reason to give.

use crate::files::Trouble;

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{self:?}")]
pub(crate) enum Errno {
    BadFd,
    Exists,
    Fault,
    TooLarge,
    Invalid,
    Io,
    IsDirectory,
    ManyFiles,
    NameTooLong,
    NotFound,
    NoSpace,
    NotDirectory,
    NotEmpty,
    NotSupported,
    ReadOnly,
    NoSeek,
    NotCapable,
}

impl Errno {
    /// The number that WASI gives it.
    pub(crate) fn number(self) -> i32 {
        match self {
            Self::BadFd => 8,
            Self::Exists => 20,
            Self::Fault => 21,
            Self::TooLarge => 22,
            Self::Invalid => 28,
            Self::Io => 29,
            Self::IsDirectory => 31,
            Self::ManyFiles => 33,
            Self::NameTooLong => 37,
            Self::NotFound => 44,
            Self::NoSpace => 51,
            Self::NotDirectory => 54,
            Self::NotEmpty => 55,
            Self::NotSupported => 58,
            Self::ReadOnly => 69,
            Self::NoSeek => 70,
            Self::NotCapable => 76,
        }
    }
}

impl From<Trouble> for Errno {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::NotFound => Self::NotFound,
            Trouble::Exists => Self::Exists,
            Trouble::NotDirectory => Self::NotDirectory,
            Trouble::IsDirectory => Self::IsDirectory,
            Trouble::NotEmpty => Self::NotEmpty,
            Trouble::NoSpace => Self::NoSpace,
            Trouble::TooLarge => Self::TooLarge,
            Trouble::NameTooLong => Self::NameTooLong,
            Trouble::BadPath => Self::Invalid,
            Trouble::ReadOnly => Self::ReadOnly,
            Trouble::Outside => Self::NotCapable,
            Trouble::NotOffered => Self::NotSupported,
            Trouble::Failed => Self::Io,
        }
    }
}
