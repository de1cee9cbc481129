//! What the host asks about files. The number of an operation is the host's choice; several run at once.
//!
//! Paths are bytes. An absolute one is the box's own; a relative one is beneath the box's home directory.

use crate::codec::{CodecError, Reader, Writer};
use crate::limits::{MAX_FILE_CHUNK, MAX_PATH};

/// Whether a link at the end of a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// It is followed.
    Follow,
    /// It is itself what was asked for.
    Keep,
}

/// Whether missing directories on the way are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parents {
    /// They are, with mode 0755.
    Make,
    /// They must be there.
    Expect,
}

/// How far a read goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// To the size that the file has when it is opened: one that grows for ever ends all the same.
    Seen,
    /// To wherever the file ends when the read gets there.
    Growing,
}

/// What a write does with what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writing {
    /// Makes the file or empties it, and follows a link.
    Truncate,
    /// Makes the file or adds to its end, and follows a link.
    Append,
    /// Makes the file, which must not be there.
    New,
    /// Writes a new file beside it, and gives it the name when all is there: nobody sees half a file.
    Replace,
}

/// Whether what is inside goes too, or is meant too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only the directory itself.
    One,
    /// Everything beneath.
    All,
}

/// Whether a move may replace what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// It may, as `rename` does.
    Replace,
    /// Nothing may be there.
    Fresh,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileAct {
    /// Send a file's bytes.
    Read {
        /// Which file; links are followed.
        path: Vec<u8>,
        /// Where to begin.
        offset: u64,
        /// Bytes at most.
        most: u64,
        /// How far.
        extent: Extent,
    },
    /// Write a file from bytes that follow.
    Write {
        /// Which file.
        path: Vec<u8>,
        /// Permission bits of a file that is made by this.
        mode: u32,
        /// What happens to what is there.
        writing: Writing,
        /// Directories on the way.
        parents: Parents,
    },
    /// Send the entries of a directory, and of those in it.
    List {
        /// Which directory; a link to one is followed, links beneath it are not.
        path: Vec<u8>,
        /// Levels: 1 is the directory alone.
        depth: u32,
        /// Entries at most.
        most: u32,
    },
    /// Send what is known of one entry.
    Stat {
        /// Which one.
        path: Vec<u8>,
        /// Whether a link is followed.
        links: Links,
    },
    /// Make a directory.
    MakeDirectory {
        /// Which one.
        path: Vec<u8>,
        /// Its permission bits.
        mode: u32,
        /// Directories on the way.
        parents: Parents,
    },
    /// Give an entry another name.
    Move {
        /// The name that it has.
        from: Vec<u8>,
        /// The name that it gets.
        to: Vec<u8>,
        /// What happens to what is there.
        target: Target,
        /// Directories on the way.
        parents: Parents,
    },
    /// Remove an entry. A link is removed and not followed.
    Remove {
        /// Which one.
        path: Vec<u8>,
        /// Whether a directory goes with everything in it.
        depth: Depth,
    },
    /// Tell what happens beneath a directory until stopped.
    Watch {
        /// Which directory.
        path: Vec<u8>,
        /// Whether directories in it are watched too, also those that are made later.
        depth: Depth,
    },
    /// Send a directory, or one file, as a tar stream.
    Pack {
        /// What to send.
        path: Vec<u8>,
    },
    /// Unpack a tar stream that follows beneath a directory.
    Unpack {
        /// Where.
        path: Vec<u8>,
        /// Directories on the way, and that one.
        parents: Parents,
        /// Bytes of file content at most.
        most_bytes: u64,
        /// Entries at most.
        most_entries: u64,
    },
}

/// Something about a file operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileAsk {
    /// Begin it.
    Begin {
        /// Bytes that the agent may send before the first credit.
        window: u32,
        /// What to do.
        act: FileAct,
    },
    /// Begin it with the rights of the root of the box. Refused where it has none.
    BeginAsRoot {
        /// Bytes that the agent may send before the first credit.
        window: u32,
        /// What to do.
        act: FileAct,
    },
    /// Bytes to write or unpack.
    Data {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// All bytes have been sent.
    DataEnd,
    /// What the agent sent was consumed: it may send this much more.
    Credit {
        /// How many bytes.
        bytes: u32,
    },
    /// End it. What is half written is removed; the agent says `Done` all the same.
    Stop,
}

impl FileAsk {
    pub(super) const KINDS: [u8; 6] = [139, 140, 141, 142, 143, 145];

    pub(super) fn decode(kind: u8, from: &mut Reader<'_>) -> Result<Self, CodecError> {
        match kind {
            139 => Ok(Self::Begin { window: from.u32()?, act: FileAct::decode(from)? }),
            145 => Ok(Self::BeginAsRoot { window: from.u32()?, act: FileAct::decode(from)? }),
            140 => {
                let bytes = from.rest();
                if bytes.len() > MAX_FILE_CHUNK {
                    return Err(CodecError::TooLong(bytes.len()));
                }
                Ok(Self::Data { bytes: bytes.to_vec() })
            }
            141 => Ok(Self::DataEnd),
            142 => Ok(Self::Credit { bytes: from.u32()? }),
            143 => Ok(Self::Stop),
            other => Err(CodecError::Unknown(u32::from(other), "question about a file")),
        }
    }

    pub(super) fn encode(&self, to: &mut Writer) -> u8 {
        match self {
            Self::Begin { window, act } => {
                to.u32(*window);
                act.encode(to);
                139
            }
            Self::BeginAsRoot { window, act } => {
                to.u32(*window);
                act.encode(to);
                145
            }
            Self::Data { bytes } => {
                to.rest(bytes);
                140
            }
            Self::DataEnd => 141,
            Self::Credit { bytes } => {
                to.u32(*bytes);
                142
            }
            Self::Stop => 143,
        }
    }
}

/// A choice of two or more, by its place in the list.
macro_rules! choices {
    ($name:ident, $what:literal, $($choice:ident),+) => {
        impl $name {
            const ALL: &'static [Self] = &[$(Self::$choice),+];
            fn encode(self, to: &mut Writer) {
                let place = Self::ALL.iter().zip(0..).find(|(other, _)| **other == self);
                to.u8(place.map_or(u8::MAX, |(_, number)| number));
            }
            fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
                let number = from.u8()?;
                Self::ALL.get(usize::from(number)).copied().ok_or(CodecError::Unknown(u32::from(number), $what))
            }
        }
    };
}
choices!(Links, "use of links", Follow, Keep);
choices!(Parents, "use of parents", Make, Expect);
choices!(Extent, "extent of a read", Seen, Growing);
choices!(Writing, "way to write", Truncate, Append, New, Replace);
choices!(Depth, "depth", One, All);
choices!(Target, "target of a move", Replace, Fresh);

impl FileAct {
    fn encode(&self, to: &mut Writer) {
        match self {
            Self::Read { path, offset, most, extent } => {
                to.u8(0);
                to.bytes(path);
                to.u64(*offset);
                to.u64(*most);
                extent.encode(to);
            }
            Self::Write { path, mode, writing, parents } => {
                to.u8(1);
                to.bytes(path);
                to.u32(*mode);
                writing.encode(to);
                parents.encode(to);
            }
            Self::List { path, depth, most } => {
                to.u8(2);
                to.bytes(path);
                to.u32(*depth);
                to.u32(*most);
            }
            Self::Stat { path, links } => {
                to.u8(3);
                to.bytes(path);
                links.encode(to);
            }
            Self::MakeDirectory { path, mode, parents } => {
                to.u8(4);
                to.bytes(path);
                to.u32(*mode);
                parents.encode(to);
            }
            Self::Move { from, to: target_path, target, parents } => {
                to.u8(5);
                to.bytes(from);
                to.bytes(target_path);
                target.encode(to);
                parents.encode(to);
            }
            Self::Remove { path, depth } => {
                to.u8(6);
                to.bytes(path);
                depth.encode(to);
            }
            Self::Watch { path, depth } => {
                to.u8(7);
                to.bytes(path);
                depth.encode(to);
            }
            Self::Pack { path } => {
                to.u8(8);
                to.bytes(path);
            }
            Self::Unpack { path, parents, most_bytes, most_entries } => {
                to.u8(9);
                to.bytes(path);
                parents.encode(to);
                to.u64(*most_bytes);
                to.u64(*most_entries);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        let act = from.u8()?;
        let path = from.bytes(MAX_PATH)?.to_vec();
        Ok(match act {
            0 => Self::Read { path, offset: from.u64()?, most: from.u64()?, extent: Extent::decode(from)? },
            1 => Self::Write {
                path,
                mode: from.u32()?,
                writing: Writing::decode(from)?,
                parents: Parents::decode(from)?,
            },
            2 => Self::List { path, depth: from.u32()?, most: from.u32()? },
            3 => Self::Stat { path, links: Links::decode(from)? },
            4 => Self::MakeDirectory { path, mode: from.u32()?, parents: Parents::decode(from)? },
            5 => Self::Move {
                from: path,
                to: from.bytes(MAX_PATH)?.to_vec(),
                target: Target::decode(from)?,
                parents: Parents::decode(from)?,
            },
            6 => Self::Remove { path, depth: Depth::decode(from)? },
            7 => Self::Watch { path, depth: Depth::decode(from)? },
            8 => Self::Pack { path },
            9 => Self::Unpack {
                path,
                parents: Parents::decode(from)?,
                most_bytes: from.u64()?,
                most_entries: from.u64()?,
            },
            other => return Err(CodecError::Unknown(u32::from(other), "file operation")),
        })
    }
}
