//! What the agent may say of an operation, and nothing else. Pure.
//!
//! Names come from a guest: one that would lead out of the directory that was asked for is a lie, since whoever unpacks
//! a list on the host believes it.

use blastbox_wire::agent::{Change, ChangeKind, Entry, Extent, FileAct, FileEnd, FileSay};
use blastbox_wire::limits::MAX_LEFT_OUT;

/// What was asked for, as far as the answers must fit it.
#[derive(Debug)]
pub(super) struct Expect {
    asked: Asked,
    /// Bytes or entries so far.
    seen: u64,
    begun: bool,
}

#[derive(Debug)]
enum Asked {
    /// A file: no more than it announced, unless it may grow.
    Read {
        offset: u64,
        most: u64,
        extent: Extent,
        left: u64,
    },
    /// Bytes without a known length, and the names of what is not in them.
    Archive {
        named: usize,
    },
    /// Entries, at most so many.
    List {
        most: u64,
    },
    /// Exactly one entry.
    Stat,
    Changes,
    /// Bytes of the host, all of them.
    Write {
        sent: u64,
        whole: bool,
    },
    Unpack {
        most: u64,
        whole: bool,
    },
    Nothing,
}

impl Expect {
    pub(super) fn of(act: &FileAct) -> Self {
        let asked = match act {
            FileAct::Read { offset, most, extent, .. } => {
                Asked::Read { offset: *offset, most: *most, extent: *extent, left: 0 }
            }
            FileAct::Write { .. } => Asked::Write { sent: 0, whole: false },
            FileAct::List { most, .. } => Asked::List { most: u64::from(*most) },
            FileAct::Stat { .. } => Asked::Stat,
            FileAct::MakeDirectory { .. } | FileAct::Move { .. } | FileAct::Remove { .. } => Asked::Nothing,
            FileAct::Watch { .. } => Asked::Changes,
            FileAct::Pack { .. } => Asked::Archive { named: 0 },
            FileAct::Unpack { most_bytes, .. } => Asked::Unpack { most: *most_bytes, whole: false },
        };
        Self { asked, seen: 0, begun: false }
    }

    /// Bytes were sent to it.
    pub(super) fn sent(&mut self, bytes: u32) {
        if let Asked::Write { sent, .. } = &mut self.asked {
            *sent = sent.saturating_add(u64::from(bytes));
        }
    }

    /// There are no more: before this it cannot be done.
    pub(super) fn all_sent(&mut self) {
        if let Asked::Write { whole, .. } | Asked::Unpack { whole, .. } = &mut self.asked {
            *whole = true;
        }
    }

    /// Whether the agent may say this now. The text says which lie it is.
    pub(super) fn check(&mut self, say: &FileSay<'_>) -> Result<(), &'static str> {
        match (&mut self.asked, say) {
            (Asked::Read { .. } | Asked::Changes, FileSay::Begun { .. }) if self.begun => {
                return Err("a file operation that begins twice");
            }
            (Asked::Read { offset, most, extent, left }, FileSay::Begun { entry }) => {
                *left = match extent {
                    Extent::Seen => entry.size.saturating_sub(*offset).min(*most),
                    Extent::Growing => *most,
                };
                self.begun = true;
            }
            (Asked::Changes, FileSay::Begun { .. }) => self.begun = true,
            (Asked::Read { left, .. }, FileSay::Chunk { bytes }) if !bytes.is_empty() && self.begun => {
                let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                *left = left.checked_sub(length).ok_or("more of a file than it announced")?;
                self.seen = self.seen.saturating_add(length);
            }
            (Asked::Archive { named: 0 }, FileSay::Chunk { bytes }) if !bytes.is_empty() => {
                self.seen = self.seen.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            }
            (Asked::Archive { named }, FileSay::Entries { entries }) if !entries.is_empty() => {
                *named = named.saturating_add(entries.len());
                if *named > MAX_LEFT_OUT {
                    return Err("more names of what an archive leaves out than are taken");
                }
                if !entries.iter().all(|Entry { path, .. }| stays_beneath(path)) {
                    return Err("an entry that is not beneath its directory");
                }
            }
            (Asked::List { most }, FileSay::Entries { entries }) if !entries.is_empty() => {
                self.seen = self.seen.saturating_add(u64::try_from(entries.len()).unwrap_or(u64::MAX));
                if self.seen > *most {
                    return Err("more entries than were asked for");
                }
                if !entries.iter().all(|Entry { path, .. }| stays_beneath(path)) {
                    return Err("an entry that is not beneath its directory");
                }
            }
            (Asked::Stat, FileSay::Entries { entries }) if entries.len() == 1 && self.seen == 0 => {
                self.seen = 1
            }
            (Asked::Changes, FileSay::Changes { changes }) if !changes.is_empty() => {
                self.seen = self.seen.saturating_add(u64::try_from(changes.len()).unwrap_or(u64::MAX));
                if !changes.iter().all(change_fits) {
                    return Err("a change that is not beneath its directory");
                }
            }
            (Asked::Write { .. } | Asked::Unpack { .. }, FileSay::Taken { .. }) => {}
            (_, FileSay::Done { end: FileEnd::Failed { .. } }) => {}
            (asked, FileSay::Done { end: FileEnd::Finished { amount, .. } }) => {
                let fits = match asked {
                    Asked::Read { .. } => self.begun && *amount == self.seen,
                    Asked::Archive { .. } | Asked::List { .. } | Asked::Changes => *amount == self.seen,
                    Asked::Stat => self.seen == 1,
                    Asked::Write { sent, whole } => *whole && amount == sent,
                    Asked::Unpack { most, whole } => *whole && amount <= most,
                    Asked::Nothing => true,
                };
                if !fits {
                    return Err("an end that does not fit what came before it");
                }
            }
            (_, FileSay::Begun { .. } | FileSay::Chunk { .. } | FileSay::Taken { .. })
            | (_, FileSay::Entries { .. } | FileSay::Changes { .. }) => {
                return Err("an answer to another question about a file");
            }
        }
        Ok(())
    }
}

/// The paths in a question.
pub(super) fn paths(act: &FileAct) -> Vec<&[u8]> {
    match act {
        FileAct::Read { path, .. }
        | FileAct::Write { path, .. }
        | FileAct::List { path, .. }
        | FileAct::Stat { path, .. }
        | FileAct::MakeDirectory { path, .. }
        | FileAct::Remove { path, .. }
        | FileAct::Watch { path, .. }
        | FileAct::Pack { path }
        | FileAct::Unpack { path, .. } => vec![path],
        FileAct::Move { from, to, .. } => vec![from, to],
    }
}

/// Names and slashes between them; no name that means another directory.
fn stays_beneath(path: &[u8]) -> bool {
    !path.contains(&0) && path.split(|&byte| byte == b'/').all(|name| !matches!(name, b"" | b"." | b".."))
}

fn change_fits(change: &Change) -> bool {
    match change.kind {
        ChangeKind::Lost | ChangeKind::Ended => change.path.is_empty(),
        // The watched directory itself may be meant.
        ChangeKind::Unwatched => matches!(change.path.as_slice(), b"" | b".") || stays_beneath(&change.path),
        ChangeKind::Created
        | ChangeKind::Written
        | ChangeKind::Removed
        | ChangeKind::MovedFrom
        | ChangeKind::MovedTo
        | ChangeKind::Attributes => stays_beneath(&change.path),
    }
}
