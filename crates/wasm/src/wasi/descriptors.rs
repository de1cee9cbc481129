//! A guest's open descriptors.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Errno;
use crate::files::{Ino, Tree};

/// What a descriptor stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Descriptor {
    /// Standard input.
    Input,
    /// Standard output (1) or error (2).
    Output(u8),
    /// A directory; one that the guest was given has a name.
    Directory { ino: Ino, given: Option<Vec<u8>> },
    /// A file.
    File { ino: Ino, at: u64, append: bool, reads: bool, writes: bool },
}

impl Descriptor {
    fn ino(&self) -> Option<Ino> {
        match self {
            Self::Directory { ino, .. } | Self::File { ino, .. } => Some(*ino),
            Self::Input | Self::Output(_) => None,
        }
    }
}

/// All of them.
pub(crate) struct Descriptors {
    list: Vec<Option<Descriptor>>,
    most: usize,
    tree: Arc<Mutex<Tree>>,
}

impl Descriptors {
    /// The standard streams, and nothing else.
    pub(crate) fn new(most: u32, tree: Arc<Mutex<Tree>>) -> Self {
        let list = vec![Some(Descriptor::Input), Some(Descriptor::Output(1)), Some(Descriptor::Output(2))];
        Self { list, most: usize::try_from(most).unwrap_or(usize::MAX).max(8), tree }
    }

    /// A thread that panicked aborts the worker, so no lock is ever poisoned.
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, fd: u32) -> Result<&Descriptor, Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::BadFd)?;
        self.list.get(at).and_then(Option::as_ref).ok_or(Errno::BadFd)
    }

    pub(crate) fn get_mut(&mut self, fd: u32) -> Result<&mut Descriptor, Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::BadFd)?;
        self.list.get_mut(at).and_then(Option::as_mut).ok_or(Errno::BadFd)
    }

    /// The entry that a descriptor stands for.
    pub(crate) fn ino(&self, fd: u32) -> Result<Ino, Errno> {
        self.get(fd)?.ino().ok_or(Errno::Invalid)
    }

    /// The directory that paths begin at.
    pub(crate) fn directory(&self, fd: u32) -> Result<Ino, Errno> {
        match self.get(fd)? {
            Descriptor::Directory { ino, .. } => Ok(*ino),
            _ => Err(Errno::NotDirectory),
        }
    }

    /// Opens one more, under the lowest number that is free. Its entry is held already, by whoever found it and under the same lock:
    /// in between another command could remove it and make another of the same number, which somebody else holds.
    pub(crate) fn keep(&mut self, descriptor: Descriptor) -> Result<u32, Errno> {
        let free = self.list.iter().position(Option::is_none).unwrap_or(self.list.len());
        if free >= self.most {
            if let Some(ino) = descriptor.ino() {
                self.tree().release(ino);
            }
            return Err(Errno::ManyFiles);
        }
        if free == self.list.len() {
            self.list.push(None);
        }
        if let Some(place) = self.list.get_mut(free) {
            *place = Some(descriptor);
        }
        u32::try_from(free).map_err(|_| Errno::ManyFiles)
    }

    pub(crate) fn close(&mut self, fd: u32) -> Result<(), Errno> {
        let at = usize::try_from(fd).map_err(|_| Errno::BadFd)?;
        let closed = self.list.get_mut(at).and_then(Option::take).ok_or(Errno::BadFd)?;
        if let Some(ino) = closed.ino() {
            self.tree().release(ino);
        }
        Ok(())
    }

    /// Moves a descriptor to another number, which is closed first.
    pub(crate) fn renumber(&mut self, from: u32, to: u32) -> Result<(), Errno> {
        self.get(from)?;
        self.get(to)?;
        if from == to {
            return Ok(());
        }
        self.close(to)?;
        let at = |fd: u32| usize::try_from(fd).map_err(|_| Errno::BadFd);
        let moved = self.list.get_mut(at(from)?).and_then(Option::take);
        if let Some(place) = self.list.get_mut(at(to)?) {
            *place = moved;
        }
        Ok(())
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        let mut tree = self.tree();
        for ino in self.list.iter().flatten().filter_map(Descriptor::ino) {
            tree.release(ino);
        }
    }
}
