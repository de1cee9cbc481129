//! Removal of a directory with everything in it, a few entries at a time.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

use super::desk::{Next, Step, finished};
use super::place::{ENTER, stat_at};
use super::trouble::Trouble;
use super::walk::Walk;

/// Entries in one step.
const STEP: usize = 64;
/// Somebody who fills directories faster than they are emptied wins after so many of them.
const PATIENCE: u32 = 1000;

/// A tree that is being removed.
#[derive(Debug)]
pub(super) struct Remove {
    parent: OwnedFd,
    name: Vec<u8>,
    /// `None`: what was asked for is no directory, or its directory goes alone.
    walk: Option<Walk>,
    /// Whether something was removed since the directory was last read from its beginning: then it is read once more,
    /// because not every file system keeps its place when entries go.
    touched: bool,
    removed: u64,
    /// How often a directory may turn out to be filled again.
    patience: u32,
}

impl Remove {
    /// One entry, which must be empty if it is a directory.
    pub(super) fn one(parent: OwnedFd, name: Vec<u8>) -> Self {
        Self { parent, name, walk: None, touched: false, removed: 0, patience: PATIENCE }
    }

    /// An entry with everything in it.
    pub(super) fn all(parent: OwnedFd, name: Vec<u8>) -> Result<Self, Trouble> {
        let walk = if FileType::from_raw_mode(stat_at(parent.as_fd(), &name)?.st_mode).is_dir() {
            Some(Walk::new(rustix::fs::openat(&parent, &name, ENTER, Mode::empty())?)?)
        } else {
            None
        };
        Ok(Self { parent, name, walk, touched: false, removed: 0, patience: PATIENCE })
    }

    pub(super) fn step(&mut self) -> Step {
        for _ in 0..STEP {
            let Some(walk) = &mut self.walk else {
                unlink(&self.parent, &self.name)?;
                return Ok(finished(self.removed.saturating_add(1)));
            };
            match walk.next()? {
                Some(name) => match rustix::fs::unlinkat(walk.here()?, &name, AtFlags::empty()) {
                    Ok(()) => {
                        self.removed = self.removed.saturating_add(1);
                        self.touched = true;
                    }
                    Err(Errno::NOENT) => {}
                    Err(Errno::ISDIR) => match walk.enter(&name) {
                        Ok(()) => self.touched = false,
                        // What cannot be read can still be empty.
                        Err(refused) => {
                            rustix::fs::unlinkat(walk.here()?, &name, AtFlags::REMOVEDIR)
                                .map_err(|_| refused)?;
                            self.removed = self.removed.saturating_add(1);
                            self.touched = true;
                        }
                    },
                    Err(errno) => return Err(errno.into()),
                },
                None if self.touched => {
                    walk.rewind()?;
                    self.touched = false;
                }
                None => match walk.leave()? {
                    None => self.walk = None,
                    Some(name) => {
                        match rustix::fs::unlinkat(walk.here()?, &name, AtFlags::REMOVEDIR) {
                            Ok(()) => self.removed = self.removed.saturating_add(1),
                            // Gone or moved away.
                            Err(Errno::NOENT) => {}
                            // Filled again: the second reading will find it.
                            Err(Errno::NOTEMPTY) if self.patience > 0 => {
                                self.patience = self.patience.saturating_sub(1);
                            }
                            Err(errno) => return Err(errno.into()),
                        }
                        self.touched = true;
                    }
                },
            }
        }
        Ok(Next::Again)
    }
}

fn unlink(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR),
        done => done,
    }
}
