//! The entries of a directory, and of the directories in it, in batches.

use std::os::fd::OwnedFd;

use blastbox_wire::agent::{Coverage, Entry, EntryKind, FileEnd, FileSay};
use blastbox_wire::limits::{MAX_LISTED, MAX_PATH};
use rustix::io::Errno;

use super::desk::{Desk, Next, Step};
use super::facts;
use super::trouble::Trouble;
use super::walk::Walk;

/// Entries in one step.
const STEP: usize = 64;
/// Bytes of one batch: one more entry always fits a frame.
const BATCH: usize = 32 * 1024;

/// A directory that is being listed.
#[derive(Debug)]
pub(super) struct List {
    walk: Walk,
    depth: usize,
    most: u64,
    sent: u64,
    skipped: u64,
    /// An entry that did not fit the credit.
    held: Option<Entry>,
}

impl List {
    pub(super) fn open(directory: OwnedFd, depth: u32, most: u32) -> Result<Self, Trouble> {
        let depth = usize::try_from(depth.max(1)).unwrap_or(usize::MAX);
        let most = u64::from(most.min(MAX_LISTED));
        Ok(Self { walk: Walk::new(directory)?, depth, most, sent: 0, skipped: 0, held: None })
    }

    pub(super) fn step(&mut self, desk: &mut Desk<'_>) -> Step {
        let allowed = desk.allowance().min(BATCH);
        let (mut entries, mut cost) = (Vec::new(), 0_usize);
        let mut next = Next::Again;
        for _ in 0..STEP {
            if self.held.is_none() {
                match self.find()? {
                    Found::Entry(entry) => self.held = Some(entry),
                    Found::Nothing => continue,
                    Found::End => {
                        next = self.done(Coverage::Whole);
                        break;
                    }
                }
            }
            if self.sent >= self.most {
                next = self.done(Coverage::Cut);
                break;
            }
            let Some(entry) = self.held.take() else { continue };
            let with = cost.saturating_add(entry.cost());
            if with > allowed {
                self.held = Some(entry);
                next = if entries.is_empty() { Next::Sleep } else { Next::Again };
                break;
            }
            cost = with;
            entries.push(entry);
            self.sent = self.sent.saturating_add(1);
        }
        if !entries.is_empty() {
            desk.say(FileSay::Entries { entries });
        }
        Ok(next)
    }

    fn done(&self, coverage: Coverage) -> Next {
        Next::Done(FileEnd::Finished { amount: self.sent, skipped: self.skipped, coverage })
    }

    fn find(&mut self) -> Result<Found, Errno> {
        let Some(name) = self.walk.next()? else {
            return Ok(if self.walk.leave()?.is_some() { Found::Nothing } else { Found::End });
        };
        let path = self.walk.path_to(&name);
        if path.len() > MAX_PATH {
            // Nobody could ask for it by that path.
            self.skipped = self.skipped.saturating_add(1);
            return Ok(Found::Nothing);
        }
        let entry = match facts::at(self.walk.here()?, &name, path) {
            Ok(entry) => entry,
            // Gone meanwhile, or another thing by now.
            Err(Errno::NOENT | Errno::INVAL) => return Ok(Found::Nothing),
            Err(_) => {
                self.skipped = self.skipped.saturating_add(1);
                return Ok(Found::Nothing);
            }
        };
        if entry.kind == EntryKind::Directory && self.walk.depth() < self.depth {
            match self.walk.enter(&name) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(_) => self.skipped = self.skipped.saturating_add(1),
            }
        }
        Ok(Found::Entry(entry))
    }
}

enum Found {
    Entry(Entry),
    Nothing,
    End,
}
