//! What the agent says about file operations.
//!
//! Trust: guest. Every byte is chosen by an attacker. Bytes, entries and changes cost what they take in the frame: the
//! window that the host granted bounds them all.

use super::files::{Change, Entry, Fault};
use crate::codec::{CodecError, Reader, Writer};
use crate::limits::{MAX_FILE_BATCH, MAX_FILE_CHUNK};

/// Whether everything that was asked for is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All of it.
    Whole,
    /// The bound that the host gave was reached.
    Cut,
}

/// How a file operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileEnd {
    /// It is done.
    Finished {
        /// Bytes of a read, write or archive; entries of a list or removal.
        amount: u64,
        /// Entries that could not be read, or are never read, and were left out.
        skipped: u64,
        /// Whether the host's bound ended it.
        coverage: Coverage,
    },
    /// It failed.
    Failed {
        /// Why, as one of our words.
        fault: Fault,
        /// Why, as an errno.
        errno: i32,
    },
}

/// Something about a file operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileSay<'a> {
    /// A read or a watch has begun: what it is about. The size is what a read will bring at most, unless it follows.
    Begun {
        /// What was opened.
        entry: Entry,
    },
    /// Bytes of a file or an archive.
    Chunk {
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Bytes of the host were written: it may send this much more.
    Taken {
        /// How many.
        bytes: u32,
    },
    /// Entries of a directory, or the one that was asked about, or one that an archive leaves out.
    Entries {
        /// Each with everything that is known of it.
        entries: Vec<Entry>,
    },
    /// Things that happened beneath a watched directory.
    Changes {
        /// In order.
        changes: Vec<Change>,
    },
    /// It is over. Last word about this operation.
    Done {
        /// How it ended.
        end: FileEnd,
    },
}

impl<'a> FileSay<'a> {
    pub(super) const KINDS: std::ops::RangeInclusive<u8> = 11..=16;

    pub(super) fn decode(kind: u8, from: &mut Reader<'a>) -> Result<Self, CodecError> {
        match kind {
            11 => Ok(Self::Begun { entry: Entry::decode(from)? }),
            12 => {
                let bytes = from.rest();
                if bytes.len() > MAX_FILE_CHUNK {
                    return Err(CodecError::TooLong(bytes.len()));
                }
                Ok(Self::Chunk { bytes })
            }
            13 => Ok(Self::Taken { bytes: from.u32()? }),
            14 => Ok(Self::Entries { entries: from.list(MAX_FILE_BATCH, Entry::decode)? }),
            15 => Ok(Self::Changes { changes: from.list(MAX_FILE_BATCH, Change::decode)? }),
            16 => Ok(Self::Done { end: decode_end(from)? }),
            other => Err(CodecError::Unknown(u32::from(other), "word about a file")),
        }
    }

    pub(super) fn encode(&self, to: &mut Writer) -> u8 {
        match self {
            Self::Begun { entry } => {
                entry.encode(to);
                11
            }
            Self::Chunk { bytes } => {
                to.rest(bytes);
                12
            }
            Self::Taken { bytes } => {
                to.u32(*bytes);
                13
            }
            Self::Entries { entries } => {
                to.list(entries, |to, entry| entry.encode(to));
                14
            }
            Self::Changes { changes } => {
                to.list(changes, |to, change| change.encode(to));
                15
            }
            Self::Done { end } => {
                match *end {
                    FileEnd::Finished { amount, skipped, coverage } => {
                        to.u8(match coverage {
                            Coverage::Whole => 0,
                            Coverage::Cut => 1,
                        });
                        to.u64(amount);
                        to.u64(skipped);
                    }
                    FileEnd::Failed { fault, errno } => {
                        to.u8(2);
                        to.u8(fault.number());
                        to.i32(errno);
                    }
                }
                16
            }
        }
    }

    /// What it costs of the window that the host granted.
    #[must_use]
    pub fn cost(&self) -> usize {
        match self {
            Self::Begun { .. } | Self::Taken { .. } | Self::Done { .. } => 0,
            Self::Chunk { bytes } => bytes.len(),
            Self::Entries { entries } => entries.iter().map(Entry::cost).sum(),
            Self::Changes { changes } => changes.iter().map(Change::cost).sum(),
        }
    }

    /// All of a `Chunk` frame except the bytes themselves, of which `length` follow: for a sender that reads them right
    /// behind it.
    #[must_use]
    pub fn chunk_head(op: u32, length: usize) -> [u8; 9] {
        let body = u32::try_from(length.saturating_add(4)).unwrap_or(u32::MAX);
        let ([a, b, c, d], [e, f, g, h]) = (body.to_be_bytes(), op.to_be_bytes());
        [12, a, b, c, d, e, f, g, h]
    }
}

fn decode_end(from: &mut Reader<'_>) -> Result<FileEnd, CodecError> {
    let coverage = match from.u8()? {
        0 => Coverage::Whole,
        1 => Coverage::Cut,
        2 => return Ok(FileEnd::Failed { fault: Fault::from_number(from.u8()?)?, errno: from.i32()? }),
        other => return Err(CodecError::Unknown(u32::from(other), "end of an operation")),
    };
    Ok(FileEnd::Finished { amount: from.u64()?, skipped: from.u64()?, coverage })
}
