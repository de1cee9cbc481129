//! A directory on its way to the host as a tar stream.
//!
//! What cannot be read by the box's user, and what is neither file, directory nor link, is left out, counted, and named behind
//! the last bytes as far as there is room for names.

use std::os::fd::OwnedFd;

use blastbox_wire::agent::{Coverage, Entry, EntryKind, FileEnd, FileSay};
use blastbox_wire::limits::{MAX_FILE_CHUNK, MAX_PATH};
use blastbox_wire::tar;
use rustix::io::Errno;

use super::desk::{Desk, Next, Step};
use super::facts;
use super::left_out::LeftOut;
use super::place::{Places, file_at};
use super::trouble::Trouble;
use super::walk::Walk;

/// Headers and small files are gathered up to this size.
const BATCH: usize = 32 * 1024;
/// Files of this size are small.
const SMALL: u64 = 8 * 1024;
/// Entries looked at in one step.
const STEP: usize = 32;

/// A directory that is being packed.
#[derive(Debug)]
pub(super) struct Pack {
    /// `None`: everything was looked at.
    walk: Option<Walk>,
    ready: Vec<u8>,
    /// How much of `ready` is sent.
    gone: usize,
    body: Option<Body>,
    closed: bool,
    sent: u64,
    left_out: LeftOut,
}

/// Content of a large file. As much is sent as its header says, whatever happens to the file.
#[derive(Debug)]
struct Body {
    file: OwnedFd,
    at: u64,
    size: u64,
}

impl Pack {
    pub(super) fn open(places: &Places, path: &[u8]) -> Result<Self, Trouble> {
        let (ready, left_out) = (Vec::new(), LeftOut::default());
        let mut pack = Self { walk: None, ready, gone: 0, body: None, closed: false, sent: 0, left_out };
        match places.directory(path) {
            Ok(directory) => pack.walk = Some(Walk::new(directory)?),
            Err(Trouble(_, Errno::NOTDIR)) => {
                let (file, stat) = places.file(path)?;
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
                pack.add(&facts::plain(name, &stat), Some(file))?;
            }
            Err(trouble) => return Err(trouble),
        }
        Ok(pack)
    }

    pub(super) fn step(&mut self, desk: &mut Desk<'_>) -> Step {
        if desk.allowance() == 0 {
            return Ok(if self.closed && self.ready.is_empty() { self.close(desk) } else { Next::Sleep });
        }
        if let Some(waiting @ [_, ..]) = self.ready.get(self.gone..) {
            let now = waiting.get(..desk.allowance()).unwrap_or(waiting);
            desk.say(FileSay::Chunk { bytes: now });
            let length = now.len();
            self.count(length);
            self.gone = self.gone.saturating_add(length);
            if self.gone == self.ready.len() {
                self.ready.clear();
                self.gone = 0;
            }
            return Ok(Next::Again);
        }
        if let Some(Body { file, at, size }) = &mut self.body {
            let left = usize::try_from(size.saturating_sub(*at)).unwrap_or(usize::MAX).min(MAX_FILE_CHUNK);
            let place = *at;
            let got = desk.chunk(left, |space| {
                match rustix::io::retry_on_intr(|| rustix::io::pread(&*file, &mut *space, place)) {
                    // It has become shorter: zeros instead, since its length is said already. A disk that fails is said.
                    Ok(0) => {
                        space.fill(0);
                        Ok(space.len())
                    }
                    got => got,
                }
            })?;
            *at = at.saturating_add(u64::try_from(got).unwrap_or(0));
            if *at >= *size {
                self.ready.resize(tar::padding(*size), 0);
                self.body = None;
            }
            self.count(got);
            return Ok(Next::Again);
        }
        let Some(mut walk) = self.walk.take() else { return Ok(self.close(desk)) };
        for _ in 0..STEP {
            match walk.next()? {
                Some(name) => self.look(&mut walk, &name)?,
                None if walk.leave()?.is_some() => {}
                None => return Ok(Next::Again),
            }
            if self.body.is_some() || self.ready.len() >= BATCH {
                break;
            }
        }
        self.walk = Some(walk);
        Ok(Next::Again)
    }

    fn look(&mut self, walk: &mut Walk, name: &[u8]) -> Result<(), Trouble> {
        let path = walk.path_to(name);
        if path.len() >= MAX_PATH {
            return Err(Errno::NAMETOOLONG.into());
        }
        let mut entry = match facts::at(walk.here()?, name, path.clone()) {
            Ok(entry) => entry,
            // Gone meanwhile.
            Err(Errno::NOENT) => return Ok(()),
            Err(_) => {
                // Not even what it is can be seen.
                self.left_out.add(unseen(path));
                return Ok(());
            }
        };
        let file = match entry.kind {
            EntryKind::File => match file_at(walk.here()?, name) {
                Ok((file, stat)) => {
                    // What was opened counts, not what was there a moment before.
                    entry = facts::plain(entry.path, &stat);
                    Some(file)
                }
                Err(_) => {
                    self.left_out.add(entry);
                    return Ok(());
                }
            },
            EntryKind::Directory | EntryKind::Link | EntryKind::Other => None,
        };
        self.add(&entry, file)?;
        if entry.kind == EntryKind::Directory && walk.enter(name).is_err() {
            self.left_out.add(entry);
        }
        Ok(())
    }

    /// Header and content of one entry; the content of a large file comes step by step.
    fn add(&mut self, entry: &Entry, file: Option<OwnedFd>) -> Result<(), Trouble> {
        if !tar::write(entry, &mut self.ready) {
            self.left_out.add(entry.clone());
            return Ok(());
        }
        let Some(file) = file.filter(|_| entry.size > 0) else { return Ok(()) };
        if entry.size > SMALL {
            self.body = Some(Body { file, at: 0, size: entry.size });
            return Ok(());
        }
        let (begin, size) = (self.ready.len(), usize::try_from(entry.size).unwrap_or(0));
        self.ready.resize(begin.saturating_add(size).saturating_add(tar::padding(entry.size)), 0);
        let space = self.ready.get_mut(begin..begin.saturating_add(size)).unwrap_or_default();
        // What is missing stays zero: its length is said already.
        rustix::io::retry_on_intr(|| rustix::io::pread(&file, &mut *space, 0))?;
        Ok(())
    }

    fn count(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(u64::try_from(bytes).unwrap_or(0));
    }

    /// Two blocks of zeros end an archive; behind them it is said what is not in it.
    fn close(&mut self, desk: &mut Desk<'_>) -> Next {
        if !self.closed {
            self.closed = true;
            self.ready.resize(self.ready.len().saturating_add(2 * tar::BLOCK), 0);
            return Next::Again;
        }
        match self.left_out.cost_of_next() {
            Some(cost) if cost > desk.allowance() => return Next::Sleep,
            Some(_) => {
                desk.say(FileSay::Entries { entries: self.left_out.next().into_iter().collect() });
                return Next::Again;
            }
            None => {}
        }
        let (amount, skipped) = (self.sent, self.left_out.count());
        Next::Done(FileEnd::Finished { amount, skipped, coverage: Coverage::Whole })
    }
}

/// An entry of which nothing but its name is known.
fn unseen(path: Vec<u8>) -> Entry {
    let (kind, size, mode, uid, gid, modified_nanos) = (EntryKind::File, 0, 0, 0, 0, 0);
    Entry { path, kind, size, mode, uid, gid, modified_nanos, link: None }
}
