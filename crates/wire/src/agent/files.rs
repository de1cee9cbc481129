//! The nouns of file operations: what an entry is, what changed, and why an operation failed.
//!
//! Trust: guest. Names, sizes and link texts are what the payload made them, and an agent may lie about all of them.

use crate::codec::{CodecError, Reader, Writer};
use crate::limits::MAX_PATH;

/// What an entry of a directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device: never opened.
    Other,
}

impl EntryKind {
    const ALL: [Self; 4] = [Self::File, Self::Directory, Self::Link, Self::Other];
}

/// Where a link leads, as far as the box's user may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beyond {
    /// What is there.
    pub kind: EntryKind,
    /// Its permission bits.
    pub mode: u32,
    /// Its path inside the box; empty where the box could not tell.
    pub path: Vec<u8>,
}

/// A symbolic link's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The text in the link.
    pub text: Vec<u8>,
    /// What following it finds. `None`: nothing that the box's user can see.
    pub beyond: Option<Beyond>,
}

/// Everything that is known of one entry. Names are bytes: newlines and bytes that are no text included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path: beneath the directory that was listed, or as it was asked for.
    pub path: Vec<u8>,
    /// What it is. A link is a link, whatever it leads to.
    pub kind: EntryKind,
    /// Bytes of a file.
    pub size: u64,
    /// Permission bits, with setuid, setgid and sticky.
    pub mode: u32,
    /// Owner inside the box.
    pub uid: u32,
    /// Group inside the box.
    pub gid: u32,
    /// Last change of content, in nanoseconds since 1970.
    pub modified_nanos: i64,
    /// The content of a symbolic link.
    pub link: Option<Link>,
}

/// Longest encoded entry: three texts with their lengths, and the numbers.
pub const MAX_ENTRY: usize = 3 * (MAX_PATH + 4) + 64;

impl Entry {
    pub(super) fn encode(&self, to: &mut Writer) {
        to.bytes(&self.path);
        to.u8(number_in(&EntryKind::ALL, self.kind));
        to.u64(self.size);
        to.u32(self.mode);
        to.u32(self.uid);
        to.u32(self.gid);
        to.i64(self.modified_nanos);
        match &self.link {
            None => to.u8(0),
            Some(Link { text, beyond: None }) => {
                to.u8(1);
                to.bytes(text);
            }
            Some(Link { text, beyond: Some(Beyond { kind, mode, path }) }) => {
                to.u8(2);
                to.bytes(text);
                to.u8(number_in(&EntryKind::ALL, *kind));
                to.u32(*mode);
                to.bytes(path);
            }
        }
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            path: from.bytes(MAX_PATH)?.to_vec(),
            kind: choice(&EntryKind::ALL, from.u8()?, "kind of entry")?,
            size: from.u64()?,
            mode: permission_bits(from.u32()?)?,
            uid: from.u32()?,
            gid: from.u32()?,
            modified_nanos: from.i64()?,
            link: match from.u8()? {
                0 => None,
                known @ (1 | 2) => {
                    let text = from.bytes(MAX_PATH)?.to_vec();
                    let beyond = if known == 2 {
                        Some(Beyond {
                            kind: choice(&EntryKind::ALL, from.u8()?, "kind of entry")?,
                            mode: permission_bits(from.u32()?)?,
                            path: from.bytes(MAX_PATH)?.to_vec(),
                        })
                    } else {
                        None
                    };
                    Some(Link { text, beyond })
                }
                other => return Err(CodecError::Unknown(u32::from(other), "kind of link")),
            },
        })
    }

    /// How many bytes it takes in a frame, which is what it costs of the window.
    #[must_use]
    pub fn cost(&self) -> usize {
        let mut to = Writer::default();
        self.encode(&mut to);
        to.finish().len()
    }
}

/// What happened beneath a watched directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// Something appeared: made, linked, or found in a directory that has just appeared.
    Created,
    /// A file's content changed.
    Written,
    /// Something is gone.
    Removed,
    /// Something was moved away from this name.
    MovedFrom,
    /// Something was moved to this name.
    MovedTo,
    /// Mode, owner or times changed.
    Attributes,
    /// More happened than could be kept: what is known of the directory is out of date. No path.
    Lost,
    /// A directory, and what is beneath it, is not watched: there are too many, or it may not be read.
    Unwatched,
    /// The watched directory itself is gone; nothing more will come.
    Ended,
}

impl ChangeKind {
    const ALL: [Self; 9] = [
        Self::Created,
        Self::Written,
        Self::Removed,
        Self::MovedFrom,
        Self::MovedTo,
        Self::Attributes,
        Self::Lost,
        Self::Unwatched,
        Self::Ended,
    ];
}

/// One change beneath a watched directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// The same number on both halves of a move; else 0.
    pub cookie: u32,
    /// Path beneath the watched directory.
    pub path: Vec<u8>,
}

impl Change {
    pub(super) fn encode(&self, to: &mut Writer) {
        to.u8(number_in(&ChangeKind::ALL, self.kind));
        to.u32(self.cookie);
        to.bytes(&self.path);
    }

    pub(super) fn decode(from: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            kind: choice(&ChangeKind::ALL, from.u8()?, "kind of change")?,
            cookie: from.u32()?,
            path: from.bytes(MAX_PATH)?.to_vec(),
        })
    }

    /// How many bytes it takes in a frame, which is what it costs of the window.
    #[must_use]
    pub fn cost(&self) -> usize {
        self.path.len().saturating_add(9)
    }
}

/// Why an operation failed: a closed, append-only list that says nothing about paths. The errno goes with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// There is no such entry.
    NotFound,
    /// There is one already.
    Exists,
    /// Part of the path, or what should be a directory, is none.
    NotDirectory,
    /// A directory is where a file should be.
    IsDirectory,
    /// A pipe, socket or device, or a file of the kernel's own about processes.
    NotRegular,
    /// The box's user may not.
    NotPermitted,
    /// The directory has something in it.
    NotEmpty,
    /// The disk, the quota or the number of files is used up.
    NoSpace,
    /// The file would be larger than the box allows.
    TooLarge,
    /// Too many links on the way.
    Loop,
    /// A name or a path is too long.
    NameTooLong,
    /// The path is empty, has a zero byte, or has no last name.
    BadPath,
    /// It is on another file system.
    CrossDevice,
    /// It may only be read there.
    ReadOnly,
    /// Somebody holds it, or it changed under way.
    Busy,
    /// Too many operations, entries, bytes or watches at once.
    TooMany,
    /// The archive is not one, or holds what is never unpacked.
    BadArchive,
    /// The host asked for the end.
    Stopped,
    /// Anything else: the errno says what.
    Failed,
}

impl Fault {
    const ALL: [Self; 19] = [
        Self::NotFound,
        Self::Exists,
        Self::NotDirectory,
        Self::IsDirectory,
        Self::NotRegular,
        Self::NotPermitted,
        Self::NotEmpty,
        Self::NoSpace,
        Self::TooLarge,
        Self::Loop,
        Self::NameTooLong,
        Self::BadPath,
        Self::CrossDevice,
        Self::ReadOnly,
        Self::Busy,
        Self::TooMany,
        Self::BadArchive,
        Self::Stopped,
        Self::Failed,
    ];
    pub(super) fn number(self) -> u8 {
        number_in(&Self::ALL, self)
    }
    pub(super) fn from_number(number: u8) -> Result<Self, CodecError> {
        choice(&Self::ALL, number, "fault")
    }
}

fn number_in<T: PartialEq>(all: &[T], one: T) -> u8 {
    all.iter().zip(0..).find(|(other, _)| **other == one).map_or(u8::MAX, |(_, number)| number)
}

fn choice<T: Copy>(all: &[T], number: u8, what: &'static str) -> Result<T, CodecError> {
    all.get(usize::from(number)).copied().ok_or(CodecError::Unknown(u32::from(number), what))
}

fn permission_bits(mode: u32) -> Result<u32, CodecError> {
    if mode & !0o7777 == 0 { Ok(mode) } else { Err(CodecError::Invalid("set of permission bits")) }
}
