//! A directory on its way to the host as a tar stream.

use std::collections::VecDeque;

use blastbox_wire::agent::{Coverage, Entry, FileEnd, FileSay};
use blastbox_wire::limits::{MAX_FILE_CHUNK, MAX_LEFT_OUT};
use blastbox_wire::tar;

use super::walk::Walk;
use super::work::{Next, entry};
use crate::files::{Facts, Ino, Kind, Tree, Trouble};

/// Levels of directories; what lies deeper is left out and counted.
const DEEPEST: usize = 1024;

/// A directory that is being packed.
pub(super) struct Pack {
    left: Left,
    ready: Vec<u8>,
    body: Option<Body>,
    closed: bool,
    sent: u64,
    skipped: u64,
    /// The first of them, which are named at the end.
    left_out: VecDeque<Entry>,
}

/// What was not looked at yet.
enum Left {
    /// What lies in a directory.
    Walk(Walk),
    /// One file, by its name in the archive until that was looked at.
    File(Option<Vec<u8>>, Ino),
}

/// Content of a file, held so that it stays. As much is sent as its header says, whatever happens to the file.
struct Body {
    ino: Ino,
    at: u64,
    size: u64,
}

impl Pack {
    pub(super) fn open(tree: &mut Tree, ino: Ino, path: &[u8]) -> Result<Self, Trouble> {
        let left = match tree.facts(ino)?.kind {
            Kind::Directory => Left::Walk(Walk::begin(tree, ino)?),
            Kind::File => {
                tree.hold(ino);
                Left::File(path.rsplit(|&byte| byte == b'/').next().map(<[u8]>::to_vec), ino)
            }
        };
        let (ready, left_out) = (Vec::new(), VecDeque::new());
        Ok(Self { left, ready, body: None, closed: false, sent: 0, skipped: 0, left_out })
    }

    /// The next entry, and how deep it lies.
    fn next(&mut self, tree: &mut Tree) -> Result<Option<(Vec<u8>, Facts, usize)>, Trouble> {
        match &mut self.left {
            Left::Walk(walk) => {
                Ok(walk.next(tree)?.map(|(path, facts)| (path, facts, walk.depth().saturating_sub(1))))
            }
            Left::File(name, ino) => name.take().map(|name| Ok((name, tree.facts(*ino)?, 0))).transpose(),
        }
    }

    pub(super) fn step(
        &mut self,
        tree: &mut Tree,
        allowance: usize,
        say: &mut dyn FnMut(FileSay<'_>),
    ) -> Result<Next, Trouble> {
        if allowance == 0 && !(self.closed && self.ready.is_empty()) {
            return Ok(Next::Sleep);
        }
        if !self.ready.is_empty() {
            let length = self.ready.len().min(allowance).min(MAX_FILE_CHUNK);
            say(FileSay::Chunk { bytes: self.ready.get(..length).unwrap_or_default() });
            self.ready.drain(..length);
            self.count(length);
            return Ok(Next::Again);
        }
        if let Some(Body { ino, at, size }) = &mut self.body {
            let left = usize::try_from(size.saturating_sub(*at)).unwrap_or(usize::MAX);
            // What it has lost meanwhile is zeros: its length is said already.
            let mut bytes = vec![0; left.min(allowance).min(MAX_FILE_CHUNK)];
            tree.read(*ino, *at, &mut bytes)?;
            say(FileSay::Chunk { bytes: &bytes });
            *at = at.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
            if *at >= *size {
                self.ready.resize(tar::padding(*size), 0);
                tree.release(*ino);
                self.body = None;
            }
            self.count(bytes.len());
            return Ok(Next::Again);
        }
        match self.next(tree)? {
            Some((path, facts, deep)) => self.look(tree, path, facts, deep),
            None if self.closed => {
                if let Some(named) = self.left_out.pop_front() {
                    if named.cost() > allowance {
                        self.left_out.push_front(named);
                        return Ok(Next::Sleep);
                    }
                    say(FileSay::Entries { entries: vec![named] });
                    return Ok(Next::Again);
                }
                // Where a guest makes entries as fast as they are looked at, at least one is left out.
                let gave_up = matches!(&self.left, Left::Walk(walk) if walk.gave_up());
                let (amount, skipped) = (self.sent, self.skipped.saturating_add(u64::from(gave_up)));
                return Ok(Next::Done(FileEnd::Finished { amount, skipped, coverage: Coverage::Whole }));
            }
            None => {
                // Two blocks of zeros end an archive.
                self.closed = true;
                self.ready.resize(2 * tar::BLOCK, 0);
            }
        }
        Ok(Next::Again)
    }

    fn look(&mut self, tree: &mut Tree, path: Vec<u8>, facts: Facts, deep: usize) {
        let entry: Entry = entry(path.clone(), &facts);
        if entry.path.is_empty() || deep >= DEEPEST || !tar::write(&entry, &mut self.ready) {
            self.skipped = self.skipped.saturating_add(1);
            // One whose path is too long has none that could be said.
            if !entry.path.is_empty() && self.left_out.len() < MAX_LEFT_OUT {
                self.left_out.push_back(entry);
            }
            return;
        }
        match (facts.kind, &mut self.left) {
            (Kind::Directory, Left::Walk(walk)) => walk.enter(tree, facts.ino, path),
            (Kind::File, _) if facts.size > 0 => {
                tree.hold(facts.ino);
                self.body = Some(Body { ino: facts.ino, at: 0, size: facts.size });
            }
            (Kind::File | Kind::Directory, _) => {}
        }
    }

    fn count(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// It is over.
    pub(super) fn close(self, tree: &mut Tree) {
        if let Some(Body { ino, .. }) = self.body {
            tree.release(ino);
        }
        match self.left {
            Left::Walk(walk) => walk.close(tree),
            Left::File(_, ino) => tree.release(ino),
        }
    }
}
