//! A directory on its way to the host as a tar stream.

use std::collections::VecDeque;

use blastbox_wire::agent::{Coverage, Entry, FileEnd, FileSay};
use blastbox_wire::limits::{MAX_FILE_CHUNK, MAX_LEFT_OUT};
use blastbox_wire::tar;

use super::work::{Next, entry};
use crate::files::{Ino, Kind, Tree, Trouble};

/// Levels of directories; what lies deeper is left out and counted.
const DEEPEST: usize = 1024;

/// A directory that is being packed.
pub(super) struct Pack {
    /// What was not looked at yet: path in the archive, and how deep it lies.
    left: VecDeque<(Vec<u8>, Ino, usize)>,
    ready: Vec<u8>,
    body: Option<Body>,
    closed: bool,
    sent: u64,
    skipped: u64,
    /// The first of them, which are named at the end.
    left_out: VecDeque<Entry>,
}

/// Content of a file, held so that it stays. As much is sent as its header says, whatever happens to the file.
struct Body {
    ino: Ino,
    at: u64,
    size: u64,
}

impl Pack {
    pub(super) fn open(tree: &Tree, ino: Ino, path: &[u8]) -> Result<Self, Trouble> {
        let (left, left_out) = (VecDeque::new(), VecDeque::new());
        let mut pack =
            Self { left, ready: Vec::new(), body: None, closed: false, sent: 0, skipped: 0, left_out };
        match tree.facts(ino)?.kind {
            Kind::Directory => pack.add_all(tree, ino, &[], 0)?,
            Kind::File => {
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
                pack.left.push_back((name, ino, 0));
            }
        }
        Ok(pack)
    }

    fn add_all(&mut self, tree: &Tree, ino: Ino, above: &[u8], deep: usize) -> Result<(), Trouble> {
        for (name, facts) in tree.list(ino, 0, usize::MAX)?.into_iter().rev() {
            let path = if above.is_empty() { name } else { [above, name.as_slice()].join(&b'/') };
            // What lies in a directory comes behind it and before its neighbours.
            self.left.push_front((path, facts.ino, deep));
        }
        Ok(())
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
        match self.left.pop_front() {
            Some((path, ino, deep)) => self.look(tree, path, ino, deep)?,
            None if self.closed => {
                if let Some(named) = self.left_out.pop_front() {
                    if named.cost() > allowance {
                        self.left_out.push_front(named);
                        return Ok(Next::Sleep);
                    }
                    say(FileSay::Entries { entries: vec![named] });
                    return Ok(Next::Again);
                }
                let (amount, skipped) = (self.sent, self.skipped);
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

    fn look(&mut self, tree: &mut Tree, path: Vec<u8>, ino: Ino, deep: usize) -> Result<(), Trouble> {
        // Gone meanwhile, or the number stands for another entry, which then is what is sent.
        let Ok(facts) = tree.facts(ino) else { return Ok(()) };
        let entry: Entry = entry(path.clone(), &facts);
        if entry.path.is_empty() || deep >= DEEPEST || !tar::write(&entry, &mut self.ready) {
            self.skipped = self.skipped.saturating_add(1);
            // One whose path is too long has none that could be said.
            if !entry.path.is_empty() && self.left_out.len() < MAX_LEFT_OUT {
                self.left_out.push_back(entry);
            }
            return Ok(());
        }
        match facts.kind {
            Kind::Directory => self.add_all(tree, ino, &path, deep.saturating_add(1))?,
            Kind::File if facts.size > 0 => {
                tree.hold(ino);
                self.body = Some(Body { ino, at: 0, size: facts.size });
            }
            Kind::File => {}
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) {
        self.sent = self.sent.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// It is over.
    pub(super) fn close(self, tree: &mut Tree) {
        if let Some(Body { ino, .. }) = self.body {
            tree.release(ino);
        }
    }
}
