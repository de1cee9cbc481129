//! The tree itself: entries, and who holds them.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound;
use std::sync::Arc;

use super::contents::Contents;
use crate::budget::{Budget, Limit};

/// The number of an entry. Numbers are used again once nobody holds the entry.
pub(crate) type Ino = usize;

/// The root.
pub(crate) const ROOT: Ino = 0;
/// Longest name of an entry.
const LONGEST_NAME: usize = 255;
/// What an entry costs beside its content.
const ENTRY: u64 = 512;

/// Why something cannot be done with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trouble {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    NoSpace,
    TooLarge,
    NameTooLong,
    BadPath,
    ReadOnly,
    Outside,
    /// Not something that this box does.
    NotOffered,
    Failed,
}

/// How much the tree may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caps {
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
    pub(crate) file: u64,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
}

/// What is known of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) ino: Ino,
    pub(crate) kind: Kind,
    pub(crate) size: u64,
    pub(crate) mode: u32,
    pub(crate) modified: i64,
}

#[derive(Debug)]
pub(super) enum Body {
    File(Contents),
    /// A file of the worker, read-only.
    Shown {
        file: Arc<File>,
        size: u64,
    },
    Directory(BTreeMap<Vec<u8>, Ino>),
}

/// How much of a directory guests may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// All of it.
    Free,
    /// It keeps its name and its place.
    Fixed,
    /// It also takes nothing new.
    Closed,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) body: Body,
    pub(super) parent: Ino,
    pub(super) modified: i64,
    pub(super) mode: u32,
    pub(super) hold: Hold,
    /// Open descriptors.
    held: u32,
    /// Whether it has a name.
    named: bool,
}

/// All files of the box.
#[derive(Debug)]
pub(crate) struct Tree {
    nodes: Vec<Option<Node>>,
    free: Vec<Ino>,
    pub(super) caps: Caps,
    pub(super) bytes: u64,
    entries: u64,
    pub(super) budget: Budget,
    /// The time of everything that happens here, where it does not go on.
    stopped: Option<i64>,
}

impl Tree {
    /// A tree with nothing but its root.
    pub(crate) fn new(caps: Caps, budget: Budget) -> Self {
        let root = Node {
            body: Body::Directory(BTreeMap::new()),
            parent: ROOT,
            modified: told(crate::clock::now()),
            mode: 0o755,
            hold: Hold::Free,
            held: 0,
            named: true,
        };
        Self { nodes: vec![Some(root)], free: Vec::new(), caps, bytes: 0, entries: 1, budget, stopped: None }
    }

    /// Everything happens at this moment, so that it happens the same way again.
    pub(crate) fn stop_time(&mut self, nanos: u64) {
        self.stopped = Some(told(nanos));
        if let Ok(root) = self.node_mut(ROOT) {
            root.modified = told(nanos);
        }
    }

    /// Nanoseconds since 1970, no finer than any clock of a guest: a file's time is one too.
    pub(crate) fn now(&self) -> i64 {
        self.stopped.unwrap_or_else(|| told(crate::clock::now()))
    }

    pub(super) fn node(&self, ino: Ino) -> Result<&Node, Trouble> {
        self.nodes.get(ino).and_then(Option::as_ref).ok_or(Trouble::NotFound)
    }

    pub(super) fn node_mut(&mut self, ino: Ino) -> Result<&mut Node, Trouble> {
        self.nodes.get_mut(ino).and_then(Option::as_mut).ok_or(Trouble::NotFound)
    }

    /// What is known of an entry.
    pub(crate) fn facts(&self, ino: Ino) -> Result<Facts, Trouble> {
        let node = self.node(ino)?;
        let (kind, size) = match &node.body {
            Body::File(contents) => (Kind::File, contents.size()),
            Body::Shown { size, .. } => (Kind::File, *size),
            Body::Directory(_) => (Kind::Directory, 0),
        };
        Ok(Facts { ino, kind, size, mode: node.mode, modified: node.modified })
    }

    pub(crate) fn directory(&self, ino: Ino) -> Result<&BTreeMap<Vec<u8>, Ino>, Trouble> {
        match &self.node(ino)?.body {
            Body::Directory(entries) => Ok(entries),
            Body::File(_) | Body::Shown { .. } => Err(Trouble::NotDirectory),
        }
    }

    fn directory_mut(&mut self, ino: Ino) -> Result<&mut BTreeMap<Vec<u8>, Ino>, Trouble> {
        let now = self.now();
        let node = self.node_mut(ino)?;
        node.modified = now;
        match &mut node.body {
            Body::Directory(entries) => Ok(entries),
            Body::File(_) | Body::Shown { .. } => Err(Trouble::NotDirectory),
        }
    }

    /// A new entry of this name, which must be free.
    pub(super) fn add(&mut self, parent: Ino, name: &[u8], body: Body, mode: u32) -> Result<Ino, Trouble> {
        if name.len() > LONGEST_NAME {
            return Err(Trouble::NameTooLong);
        }
        if name.is_empty() || name.contains(&0) || name.contains(&b'/') {
            return Err(Trouble::BadPath);
        }
        if !self.node(parent)?.named {
            return Err(Trouble::NotFound);
        }
        if self.directory(parent)?.contains_key(name) {
            return Err(Trouble::Exists);
        }
        if self.node(parent)?.hold == Hold::Closed {
            return Err(Trouble::ReadOnly);
        }
        if self.entries >= self.caps.entries {
            return Err(self.full(Limit::Inodes));
        }
        if !self.budget.take(ENTRY) {
            return Err(self.full(Limit::Memory));
        }
        self.entries = self.entries.saturating_add(1);
        let node = Node {
            body,
            parent,
            modified: self.now(),
            mode: mode & 0o7777,
            hold: Hold::Free,
            held: 0,
            named: true,
        };
        let ino = match self.free.pop() {
            Some(ino) => ino,
            None => {
                self.nodes.push(None);
                self.nodes.len().saturating_sub(1)
            }
        };
        if let Some(place) = self.nodes.get_mut(ino) {
            *place = Some(node);
        }
        self.directory_mut(parent)?.insert(name.to_vec(), ino);
        Ok(ino)
    }

    /// Files and directories that there may be at once.
    pub(crate) fn most_entries(&self) -> u64 {
        self.caps.entries
    }

    /// An empty file.
    pub(crate) fn make_file(&mut self, parent: Ino, name: &[u8], mode: u32) -> Result<Ino, Trouble> {
        self.add(parent, name, Body::File(Contents::default()), mode)
    }

    /// An empty directory.
    pub(crate) fn make_directory(&mut self, parent: Ino, name: &[u8], mode: u32) -> Result<Ino, Trouble> {
        self.add(parent, name, Body::Directory(BTreeMap::new()), mode)
    }

    /// A file of the worker.
    pub(crate) fn show(&mut self, parent: Ino, name: &[u8], file: Arc<File>) -> Result<Ino, Trouble> {
        let size = file.metadata().map_err(|_| Trouble::Failed)?.len();
        self.add(parent, name, Body::Shown { file, size }, 0o444)
    }

    /// Takes a file's name, or that of an empty directory.
    pub(crate) fn remove(&mut self, parent: Ino, name: &[u8]) -> Result<(), Trouble> {
        let ino = *self.directory(parent)?.get(name).ok_or(Trouble::NotFound)?;
        if self.node(ino)?.hold != Hold::Free {
            return Err(Trouble::ReadOnly);
        }
        match &self.node(ino)?.body {
            Body::Directory(entries) if !entries.is_empty() => return Err(Trouble::NotEmpty),
            Body::Shown { .. } => return Err(Trouble::ReadOnly),
            Body::Directory(_) | Body::File(_) => {}
        }
        self.directory_mut(parent)?.remove(name);
        self.node_mut(ino)?.named = false;
        self.forget(ino);
        Ok(())
    }

    /// Gives an entry another name. What has that name is replaced, as long as it is of the same kind and empty.
    pub(crate) fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> Result<(), Trouble> {
        let ino = *self.directory(from.0)?.get(from.1).ok_or(Trouble::NotFound)?;
        let kind = self.facts(ino)?.kind;
        let stays = matches!(self.node(ino)?.body, Body::Shown { .. }) || self.node(ino)?.hold != Hold::Free;
        if stays || self.node(to.0)?.hold == Hold::Closed {
            return Err(Trouble::ReadOnly);
        }
        // A directory cannot go beneath itself.
        let mut above = to.0;
        while above != ROOT {
            if above == ino {
                return Err(Trouble::BadPath);
            }
            above = self.node(above)?.parent;
        }
        if to.1.len() > LONGEST_NAME {
            return Err(Trouble::NameTooLong);
        }
        if !self.node(to.0)?.named {
            return Err(Trouble::NotFound);
        }
        if let Some(&other) = self.directory(to.0)?.get(to.1) {
            if other == ino {
                return Ok(());
            }
            match (kind, self.facts(other)?.kind) {
                (Kind::File, Kind::Directory) => return Err(Trouble::IsDirectory),
                (Kind::Directory, Kind::File) => return Err(Trouble::NotDirectory),
                _ => self.remove(to.0, to.1)?,
            }
        }
        self.directory_mut(from.0)?.remove(from.1);
        self.directory_mut(to.0)?.insert(to.1.to_vec(), ino);
        self.node_mut(ino)?.parent = to.0;
        Ok(())
    }

    /// Somebody has it open: it stays when its name goes.
    pub(crate) fn hold(&mut self, ino: Ino) {
        if let Ok(node) = self.node_mut(ino) {
            node.held = node.held.saturating_add(1);
        }
    }

    /// Nobody has it open any more.
    pub(crate) fn release(&mut self, ino: Ino) {
        if let Ok(node) = self.node_mut(ino) {
            node.held = node.held.saturating_sub(1);
            self.forget(ino);
        }
    }

    /// Lets an entry go that has neither name nor holder.
    fn forget(&mut self, ino: Ino) {
        if self.node(ino).is_ok_and(|node| node.named || node.held > 0) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(ino).and_then(Option::take) {
            if let Body::File(contents) = &node.body {
                self.give_bytes(contents.room());
            }
            self.entries = self.entries.saturating_sub(1);
            self.budget.give(ENTRY);
            self.free.push(ino);
        }
    }

    /// There is no room, for this reason, which is told.
    fn full(&self, limit: Limit) -> Trouble {
        self.budget.meet(limit);
        Trouble::NoSpace
    }

    /// Room for more bytes.
    pub(super) fn take_bytes(&mut self, bytes: u64) -> Result<(), Trouble> {
        let all = self.bytes.saturating_add(bytes);
        if all > self.caps.bytes {
            return Err(self.full(Limit::Disk));
        }
        if !self.budget.take(bytes) {
            return Err(self.full(Limit::Memory));
        }
        self.bytes = all;
        Ok(())
    }

    pub(super) fn give_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.budget.give(bytes);
    }

    /// Sets when it was changed last.
    pub(crate) fn touch(&mut self, ino: Ino, modified: i64) -> Result<(), Trouble> {
        if !self.may_write(ino) {
            return Err(Trouble::ReadOnly);
        }
        self.node_mut(ino)?.modified = modified;
        Ok(())
    }

    /// Whether it can be written at all.
    pub(crate) fn may_write(&self, ino: Ino) -> bool {
        self.node(ino).is_ok_and(|node| !matches!(node.body, Body::Shown { .. }) && node.hold != Hold::Closed)
    }

    /// Keeps guests from changing this, and everything beneath it.
    pub(crate) fn close(&mut self, ino: Ino) {
        let mut left = vec![ino];
        while let Some(ino) = left.pop() {
            if let Ok(node) = self.node_mut(ino) {
                node.hold = Hold::Closed;
                if let Body::Directory(entries) = &node.body {
                    left.extend(entries.values());
                }
            }
        }
    }

    /// Says when it was changed last, as the host knows it.
    pub(crate) fn date(&mut self, ino: Ino, nanos: i64) -> Result<(), Trouble> {
        let (stopped, grain) = (self.stopped, i64::try_from(crate::clock::GRAIN).unwrap_or(1));
        let node = self.node_mut(ino)?;
        node.modified = stopped.unwrap_or_else(|| nanos.saturating_sub(nanos.rem_euclid(grain)));
        Ok(())
    }

    /// Up to `most` entries behind the first `skip`, by name.
    pub(crate) fn list(&self, ino: Ino, skip: usize, most: usize) -> Result<Vec<(Vec<u8>, Facts)>, Trouble> {
        let entries = self.directory(ino)?.iter().skip(skip).take(most);
        entries.map(|(name, &ino)| Ok((name.clone(), self.facts(ino)?))).collect()
    }
    /// The entry whose name comes next behind this one: whoever removes what was read misses nothing.
    pub(crate) fn behind(&self, ino: Ino, name: Option<&[u8]>) -> Result<Option<(Vec<u8>, Facts)>, Trouble> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let next = self.directory(ino)?.range::<[u8], _>((from, Bound::Unbounded)).next();
        next.map(|(name, &ino)| Ok((name.clone(), self.facts(ino)?))).transpose()
    }
}

fn told(nanos: u64) -> i64 {
    i64::try_from(nanos).unwrap_or(i64::MAX)
}
