//! A walk through a tree of directories that others change at the same time.
//!
//! Every step is taken from one open directory to the next, never by a path, so that a directory which becomes a link
//! under way leads nowhere. Only a few levels stay open however deep the tree is: those above are found again by `..`,
//! and must then be what they were.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, RawDir, SeekFrom};
use rustix::io::Errno;

use super::place::ENTER;

/// Levels whose directories stay open.
const KEPT_OPEN: usize = 8;
/// Levels at most: each costs memory.
const DEEPEST: usize = 16_384;
/// What is read of a directory at once.
const GULP: usize = 8 * 1024;

/// A walk, standing in a directory.
#[derive(Debug)]
pub(super) struct Walk {
    levels: Vec<Level>,
    /// Names from the first directory to this one, each followed by a slash.
    path: Vec<u8>,
}

#[derive(Debug)]
struct Level {
    directory: Option<OwnedFd>,
    identity: (u64, u64),
    /// Names that were read and not handed out, each with the place behind it.
    names: VecDeque<(Vec<u8>, u64)>,
    /// The place behind what was handed out.
    place: u64,
    ended: bool,
    /// Length of the path up to here.
    path: usize,
}

impl Level {
    fn new(directory: OwnedFd, path: usize) -> Result<Self, Errno> {
        let identity = identity(directory.as_fd())?;
        let names = VecDeque::new();
        Ok(Self { directory: Some(directory), identity, names, place: 0, ended: false, path })
    }

    fn fill(&mut self) -> Result<(), Errno> {
        let Some(directory) = &self.directory else { return Err(Errno::BADF) };
        let mut buffer = [MaybeUninit::uninit(); GULP];
        let mut entries = RawDir::new(directory, &mut buffer);
        loop {
            let Some(entry) = entries.next() else {
                self.ended = true;
                return Ok(());
            };
            let entry = entry?;
            let (name, place) = (entry.file_name().to_bytes(), entry.next_entry_cookie());
            if !matches!(name, b"." | b"..") {
                self.names.push_back((name.to_vec(), place));
            }
            if entries.is_buffer_empty() {
                return Ok(());
            }
        }
    }
}

impl Walk {
    /// Begins in a directory that is open for reading.
    pub(super) fn new(directory: OwnedFd) -> Result<Self, Errno> {
        Ok(Self { levels: vec![Level::new(directory, 0)?], path: Vec::new() })
    }

    /// How deep it stands: 1 is where it began.
    pub(super) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// The directory that it stands in.
    pub(super) fn here(&self) -> Result<BorrowedFd<'_>, Errno> {
        let directory = self.levels.last().and_then(|level| level.directory.as_ref());
        directory.map(AsFd::as_fd).ok_or(Errno::BADF)
    }

    /// The path of an entry of this directory, from where the walk began.
    pub(super) fn path_to(&self, name: &[u8]) -> Vec<u8> {
        [&self.path, name].concat()
    }

    /// The next name in this directory. `None`: there are no more.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, Errno> {
        let Some(level) = self.levels.last_mut() else { return Ok(None) };
        while level.names.is_empty() && !level.ended {
            level.fill()?;
        }
        Ok(level.names.pop_front().map(|(name, place)| {
            level.place = place;
            name
        }))
    }

    /// Reads this directory from its beginning again.
    pub(super) fn rewind(&mut self) -> Result<(), Errno> {
        let Some(level) = self.levels.last_mut() else { return Err(Errno::BADF) };
        let Some(directory) = &level.directory else { return Err(Errno::BADF) };
        rustix::fs::seek(directory, SeekFrom::Start(0))?;
        level.names.clear();
        (level.place, level.ended) = (0, false);
        Ok(())
    }

    /// Steps down into a directory of this one. A link is not followed.
    pub(super) fn enter(&mut self, name: &[u8]) -> Result<(), Errno> {
        if self.levels.len() >= DEEPEST {
            return Err(Errno::NAMETOOLONG);
        }
        let directory = rustix::fs::openat(self.here()?, name, ENTER, Mode::empty())?;
        let level = Level::new(directory, self.path.len())?;
        self.path.extend_from_slice(name);
        self.path.push(b'/');
        self.levels.push(level);
        if let Some(far) = self.levels.len().checked_sub(KEPT_OPEN.saturating_add(1))
            && let Some(level) = self.levels.get_mut(far)
        {
            level.directory = None;
            // Memory too. They are read again from the place where the walk went down.
            level.names = VecDeque::new();
            level.ended = false;
        }
        Ok(())
    }

    /// Steps up, and says which directory was left. `None`: this is where the walk began.
    pub(super) fn leave(&mut self) -> Result<Option<Vec<u8>>, Errno> {
        if self.levels.len() <= 1 {
            return Ok(None);
        }
        let Some(left) = self.levels.pop() else { return Ok(None) };
        let name =
            self.path.get(left.path..).and_then(|rest| rest.strip_suffix(b"/")).unwrap_or_default().to_vec();
        self.path.truncate(left.path);
        if let Some(level) = self.levels.last_mut()
            && level.directory.is_none()
        {
            let below = left.directory.as_ref().ok_or(Errno::BADF)?;
            let found = rustix::fs::openat(below, "..", ENTER, Mode::empty())?;
            if identity(found.as_fd())? != level.identity {
                // Somebody has moved the directory: above it is another tree, which nobody asked for.
                return Err(Errno::STALE);
            }
            rustix::fs::seek(&found, SeekFrom::Start(level.place))?;
            level.directory = Some(found);
        }
        Ok(Some(name))
    }
}

/// What a directory is, whatever its name.
pub(super) fn identity(directory: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(directory)?;
    Ok((stat.st_dev, stat.st_ino))
}
