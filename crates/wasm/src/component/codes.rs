//! What `wasi:filesystem/types` says and hears: errors, kinds, flags, facts.

use wasmtime::component::{ComponentType, Lift, Lower, flags};

use super::about::Datetime;
use crate::files::{Facts, Kind};
use crate::wasi::Errno;

/// Why a call failed. All that WASI names, in its order; few of them have a reason here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the type is WASI's")]
pub(super) enum ErrorCode {
    #[component(name = "access")]
    Access,
    #[component(name = "would-block")]
    WouldBlock,
    #[component(name = "already")]
    Already,
    #[component(name = "bad-descriptor")]
    BadDescriptor,
    #[component(name = "busy")]
    Busy,
    #[component(name = "deadlock")]
    Deadlock,
    #[component(name = "quota")]
    Quota,
    #[component(name = "exist")]
    Exist,
    #[component(name = "file-too-large")]
    FileTooLarge,
    #[component(name = "illegal-byte-sequence")]
    IllegalByteSequence,
    #[component(name = "in-progress")]
    InProgress,
    #[component(name = "interrupted")]
    Interrupted,
    #[component(name = "invalid")]
    Invalid,
    #[component(name = "io")]
    Io,
    #[component(name = "is-directory")]
    IsDirectory,
    #[component(name = "loop")]
    Loop,
    #[component(name = "too-many-links")]
    TooManyLinks,
    #[component(name = "message-size")]
    MessageSize,
    #[component(name = "name-too-long")]
    NameTooLong,
    #[component(name = "no-device")]
    NoDevice,
    #[component(name = "no-entry")]
    NoEntry,
    #[component(name = "no-lock")]
    NoLock,
    #[component(name = "insufficient-memory")]
    InsufficientMemory,
    #[component(name = "insufficient-space")]
    InsufficientSpace,
    #[component(name = "not-directory")]
    NotDirectory,
    #[component(name = "not-empty")]
    NotEmpty,
    #[component(name = "not-recoverable")]
    NotRecoverable,
    #[component(name = "unsupported")]
    Unsupported,
    #[component(name = "no-tty")]
    NoTty,
    #[component(name = "no-such-device")]
    NoSuchDevice,
    #[component(name = "overflow")]
    Overflow,
    #[component(name = "not-permitted")]
    NotPermitted,
    #[component(name = "pipe")]
    Pipe,
    #[component(name = "read-only")]
    ReadOnly,
    #[component(name = "invalid-seek")]
    InvalidSeek,
    #[component(name = "text-file-busy")]
    TextFileBusy,
    #[component(name = "cross-device")]
    CrossDevice,
}

impl From<Errno> for ErrorCode {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::BadFd => Self::BadDescriptor,
            Errno::Exists => Self::Exist,
            Errno::Fault | Errno::Io => Self::Io,
            Errno::TooLarge => Self::FileTooLarge,
            Errno::Invalid => Self::Invalid,
            Errno::IsDirectory => Self::IsDirectory,
            // WASI 0.2 has no word for too many open files.
            Errno::ManyFiles => Self::InsufficientMemory,
            Errno::NameTooLong => Self::NameTooLong,
            Errno::NotFound => Self::NoEntry,
            Errno::NoSpace => Self::InsufficientSpace,
            Errno::NotDirectory => Self::NotDirectory,
            Errno::NotEmpty => Self::NotEmpty,
            Errno::NotSupported => Self::Unsupported,
            Errno::ReadOnly => Self::ReadOnly,
            Errno::NoSeek => Self::InvalidSeek,
            Errno::NotCapable => Self::NotPermitted,
        }
    }
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the type is WASI's")]
pub(super) enum DescriptorType {
    #[component(name = "unknown")]
    Unknown,
    #[component(name = "block-device")]
    BlockDevice,
    #[component(name = "character-device")]
    CharacterDevice,
    #[component(name = "directory")]
    Directory,
    #[component(name = "fifo")]
    Fifo,
    #[component(name = "symbolic-link")]
    SymbolicLink,
    #[component(name = "regular-file")]
    RegularFile,
    #[component(name = "socket")]
    Socket,
}

impl From<Kind> for DescriptorType {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::File => Self::RegularFile,
            Kind::Directory => Self::Directory,
        }
    }
}

flags! {
    DescriptorFlags {
        #[component(name = "read")]
        const READ;
        #[component(name = "write")]
        const WRITE;
        #[component(name = "file-integrity-sync")]
        const FILE_SYNC;
        #[component(name = "data-integrity-sync")]
        const DATA_SYNC;
        #[component(name = "requested-write-sync")]
        const WRITE_SYNC;
        #[component(name = "mutate-directory")]
        const MUTATE_DIRECTORY;
    }
}

flags! {
    PathFlags {
        #[component(name = "symlink-follow")]
        const FOLLOW;
    }
}

flags! {
    OpenFlags {
        #[component(name = "create")]
        const CREATE;
        #[component(name = "directory")]
        const DIRECTORY;
        #[component(name = "exclusive")]
        const EXCLUSIVE;
        #[component(name = "truncate")]
        const TRUNCATE;
    }
}

/// What a guest means to do with a file: nobody asks.
#[derive(Debug, Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "guests say it")]
pub(super) enum Advice {
    #[component(name = "normal")]
    Normal,
    #[component(name = "sequential")]
    Sequential,
    #[component(name = "random")]
    Random,
    #[component(name = "will-need")]
    WillNeed,
    #[component(name = "dont-need")]
    DontNeed,
    #[component(name = "no-reuse")]
    NoReuse,
}

/// What is known of an entry.
#[derive(Debug, Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub(super) struct DescriptorStat {
    #[component(name = "type")]
    kind: DescriptorType,
    #[component(name = "link-count")]
    link_count: u64,
    size: u64,
    #[component(name = "data-access-timestamp")]
    read: Option<Datetime>,
    #[component(name = "data-modification-timestamp")]
    modified: Option<Datetime>,
    #[component(name = "status-change-timestamp")]
    changed: Option<Datetime>,
}

impl From<&Facts> for DescriptorStat {
    fn from(facts: &Facts) -> Self {
        let time = Some(Datetime::of(u64::try_from(facts.modified).unwrap_or(0)));
        let (kind, size) = (facts.kind.into(), facts.size);
        Self { kind, link_count: 1, size, read: time, modified: time, changed: time }
    }
}

/// What the time of an entry becomes.
#[derive(Debug, Clone, Copy, ComponentType, Lift)]
#[component(variant)]
pub(super) enum NewTimestamp {
    #[component(name = "no-change")]
    NoChange,
    #[component(name = "now")]
    Now,
    #[component(name = "timestamp")]
    Timestamp(Datetime),
}

/// What lies in a directory.
#[derive(Debug, Clone, ComponentType, Lower)]
#[component(record)]
pub(super) struct DirectoryEntry {
    #[component(name = "type")]
    pub(super) kind: DescriptorType,
    pub(super) name: String,
}

/// Two entries of the same value are one.
#[derive(Debug, Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub(super) struct MetadataHash {
    lower: u64,
    upper: u64,
}

impl From<&Facts> for MetadataHash {
    fn from(facts: &Facts) -> Self {
        Self { lower: u64::try_from(facts.ino).unwrap_or(u64::MAX).saturating_add(1), upper: 0 }
    }
}
