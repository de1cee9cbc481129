//! Why a tree was not made. Whatever was there of it is thrown away.

use std::io;

/// What is wrong with what a tree should be made from, or with the place where it should be made.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// A path that leads out of the image.
    #[error("the entry {path:?} leads out of the image: {why}")]
    Outside {
        /// The path, as it was written.
        path: String,
        /// How.
        why: &'static str,
    },
    /// A device.
    #[error("the entry {path:?} is a device, which an image has no use for outside /dev")]
    Device {
        /// The path.
        path: String,
    },
    /// An entry of a kind that is not known.
    #[error("the entry {path:?} is of the kind {kind:?}, which is neither file, directory nor link")]
    Kind {
        /// The path.
        path: String,
        /// The archive's letter for it.
        kind: char,
    },
    /// More content than is permitted.
    #[error("the image holds more than {most} bytes")]
    TooLarge {
        /// How many are permitted.
        most: u64,
    },
    /// More entries than are permitted.
    #[error("the image has more than {most} entries")]
    TooMany {
        /// How many are permitted.
        most: u64,
    },
    /// A path that is too long or too deep.
    #[error(
        "the path {path:?} is too long or too deep: at most {bytes} bytes and {depth} levels are permitted"
    )]
    TooDeep {
        /// The beginning of the path.
        path: String,
        /// Longest path.
        bytes: usize,
        /// Most levels.
        depth: usize,
    },
    /// Paths that are too long together.
    #[error("the paths of one layer are longer than {most} bytes together")]
    LongPaths {
        /// How many are permitted.
        most: u64,
    },
    /// An archive that grows out of all proportion.
    #[error("the archive unpacks to more than {most} times its size")]
    Bomb {
        /// The permitted ratio.
        most: u64,
    },
    /// Not an archive, or one that breaks off.
    #[error("this is no tar archive, or it is damaged or breaks off")]
    BadArchive,
    /// A way of compression that is not built in.
    #[error("the archive is compressed with {with}; gzip and plain tar can be read")]
    Compression {
        /// Which one.
        with: &'static str,
    },
    /// The content is not what its digest says.
    #[error("{what} is not what its digest says: expected {expected}, found {found}")]
    Mismatch {
        /// What was read.
        what: String,
        /// The digest that was promised.
        expected: String,
        /// The digest that it has.
        found: String,
    },
    /// The source cannot be read.
    #[error("cannot read {what}")]
    Read {
        /// What was read.
        what: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The tree cannot be written.
    #[error("cannot make {path:?} in the image store")]
    Write {
        /// The path in the image.
        path: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

impl TreeError {
    /// A stable word for it.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Outside { .. } => "image_path_outside",
            Self::Device { .. } => "image_device",
            Self::Kind { .. } => "image_entry_kind",
            Self::TooLarge { .. } => "image_too_large",
            Self::TooMany { .. } => "image_too_many_entries",
            Self::TooDeep { .. } | Self::LongPaths { .. } => "image_path_too_long",
            Self::Bomb { .. } => "image_bomb",
            Self::BadArchive => "image_bad_archive",
            Self::Compression { .. } => "image_compression",
            Self::Mismatch { .. } => "image_digest_mismatch",
            Self::Read { .. } => "image_unreadable",
            Self::Write { .. } => "image_store_failed",
        }
    }

    pub(crate) fn write(path: &[u8], source: impl Into<io::Error>) -> Self {
        Self::Write { path: shown(path), source: source.into() }
    }

    pub(crate) fn outside(path: &[u8], why: &'static str) -> Self {
        Self::Outside { path: shown(path), why }
    }
}

/// As much of a path as a message may carry.
pub(crate) fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path.get(..path.len().min(256)).unwrap_or_default()).into_owned()
}
