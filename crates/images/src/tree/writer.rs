//! The only hand that makes something in a tree.
//!
//! Everything belongs to whoever runs it; set-id and sticky bits, write permission for others, owners and extended
//! attributes are not taken over. What a box fills itself (`/dev`, `/proc`, `/sys`, `/run`, `/tmp`) is left out.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps, fchmod, futimens, linkat, mkdirat, openat,
    symlinkat,
};
use rustix::io::Errno;

use super::beneath::{hold, kind, make_and_hold, names, remove};
use super::error::shown;
use super::{TreeError, beneath};

/// The directories at the top whose content no box ever sees.
const NEVER_SHOWN: [&[u8]; 5] = [b"dev", b"proc", b"sys", b"run", b"tmp"];

/// How much an image may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Bytes of content, counted before they are written.
    pub bytes: u64,
    /// Files, directories (those that a path only implies as well) and links, and entries of archives that are none.
    pub entries: u64,
}

/// Headers and records of one entry of an archive, counted generously.
const PER_ENTRY: u64 = 2_048;
/// Bytes of path that one entry has, counted generously …
const PATH: u64 = 128;
/// … and what all paths of a layer may have together, however few entries are permitted.
const FEW_PATHS: u64 = 1 << 20;

impl Default for Caps {
    fn default() -> Self {
        Self { bytes: 16 << 30, entries: 2_000_000 }
    }
}

/// What was made so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Made {
    /// Bytes of content.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
    /// Entries that were left out: pipes, sockets, and what is never shown.
    pub left_out: u64,
    /// Of these, what is the same file in another tree.
    pub shared: Shared,
}

/// Files that take no room of their own: another tree has them too.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Shared {
    /// How many.
    pub files: u64,
    /// Bytes of their content.
    pub bytes: u64,
}

impl Shared {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.files = self.files.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

/// A tree in the making.
#[derive(Debug)]
pub struct TreeWriter {
    root: OwnedFd,
    caps: Caps,
    made: Made,
    /// Bytes of all archives so far, without their compression: a manifest may name thousands of layers.
    unpacked: u64,
    /// The directory that the last entry was in.
    parent: Option<(Vec<u8>, OwnedFd)>,
    /// What this layer has made, parents included: its own whiteouts do not touch that.
    pub(super) of_layer: HashSet<Vec<u8>>,
    /// The directories that have nothing of the layers below any more, because this layer says so.
    pub(super) cleared: HashSet<Vec<u8>>,
    /// The bytes of all these paths: few entries with long paths must not fill the memory.
    remembered: u64,
    /// How often a directory was read for a whiteout.
    #[cfg(test)]
    pub(super) listings: u64,
}

impl TreeWriter {
    /// A writer beneath an empty directory.
    #[must_use]
    pub fn new(root: OwnedFd, caps: Caps) -> Self {
        Self {
            root,
            caps,
            made: Made::default(),
            unpacked: 0,
            parent: None,
            of_layer: HashSet::new(),
            cleared: HashSet::new(),
            remembered: 0,
            #[cfg(test)]
            listings: 0,
        }
    }

    /// What was made so far.
    #[must_use]
    pub fn made(&self) -> Made {
        self.made
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> u64 {
        self.remembered
    }

    pub(super) fn root(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// What was held may be gone.
    pub(super) fn forget_parent(&mut self) {
        self.parent = None;
    }

    /// From here on whiteouts mean what is there now.
    pub(super) fn begin_layer(&mut self) {
        self.of_layer.clear();
        self.cleared.clear();
        self.remembered = 0;
        self.parent = None;
    }

    /// Counts an entry, before anything is done for it.
    pub(super) fn count(&mut self) -> Result<(), TreeError> {
        self.made.entries = self.made.entries.saturating_add(1);
        if self.made.entries > self.caps.entries {
            return Err(TreeError::TooMany { most: self.caps.entries });
        }
        Ok(())
    }

    /// Counts bytes of an archive, whatever they are, before they are looked at.
    pub(super) fn unpacked(&mut self, bytes: usize) -> Result<(), TreeError> {
        let most = self.caps.bytes.saturating_add(self.caps.entries.saturating_mul(PER_ENTRY));
        self.unpacked = self.unpacked.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if self.unpacked > most { Err(TreeError::TooLarge { most: self.caps.bytes }) } else { Ok(()) }
    }

    pub(super) fn leave_out(&mut self) {
        self.made.left_out = self.made.left_out.saturating_add(1);
    }

    /// Counts content, before it is written.
    pub(super) fn grow(&mut self, bytes: u64) -> Result<(), TreeError> {
        self.made.bytes = self.made.bytes.saturating_add(bytes);
        if self.made.bytes > self.caps.bytes {
            return Err(TreeError::TooLarge { most: self.caps.bytes });
        }
        Ok(())
    }

    /// Makes an empty file to be filled, in the place of whatever was there.
    pub(crate) fn file(&mut self, path: &[&[u8]], size: u64) -> Result<File, TreeError> {
        self.grow(size)?;
        self.at(path, |parent, name| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let make = || openat(parent, name, flags, Mode::from_raw_mode(0o600)).map(File::from);
            // Nearly always nothing is there.
            match make() {
                Err(Errno::EXIST) => remove(parent, name).and_then(|()| make()),
                made => made,
            }
        })
    }

    /// Gives a file of another tree of the store a name in this one as well. Neither is ever changed: whoever writes at that
    /// place makes a new file. `false`: it cannot have one more name, and has to be copied.
    pub(crate) fn adopt(
        &mut self,
        path: &[&[u8]],
        from: BorrowedFd<'_>,
        stat: &Stat,
    ) -> Result<bool, TreeError> {
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        self.grow(size)?;
        let own = path.last().copied().unwrap_or_default();
        let adopted = self.at(path, |parent, name| {
            remove(parent, name)?;
            match linkat(from, own, parent, name, AtFlags::empty()) {
                Err(Errno::MLINK | Errno::XDEV | Errno::PERM) => Ok(false),
                linked => linked.map(|()| true),
            }
        })?;
        match adopted {
            true => self.made.shared.add(size),
            // Whoever copies it counts it.
            false => self.made.bytes = self.made.bytes.saturating_sub(size),
        }
        Ok(adopted)
    }

    /// Makes a directory, or gives one that is there this mode.
    pub(crate) fn directory(&mut self, path: &[&[u8]], mode: u32) -> Result<(), TreeError> {
        if path.is_empty() {
            return Ok(());
        }
        let mode = Mode::from_raw_mode((mode & 0o755) | 0o700);
        self.at(path, |parent, name| {
            match kind(parent, name)? {
                Some(FileType::Directory) => {}
                Some(_) => remove(parent, name)?,
                None => {}
            }
            match mkdirat(parent, name, mode) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            fchmod(openat(parent, name, flags, Mode::empty())?, mode)
        })
    }

    /// Makes a link. Its text is kept as it is and never followed on our side.
    pub(crate) fn link(&mut self, path: &[&[u8]], text: &[u8]) -> Result<(), TreeError> {
        if text.is_empty() || text.contains(&0) || text.len() > beneath::MOST_BYTES {
            return Err(TreeError::outside(&path.join(&b'/'), "its text is no path"));
        }
        self.at(path, |parent, name| {
            remove(parent, name)?;
            symlinkat(text, parent, name)
        })
    }

    /// Gives a file of the tree a second name.
    pub(crate) fn hard_link(&mut self, path: &[&[u8]], target: &[u8]) -> Result<(), TreeError> {
        let aim = names(target)?;
        let outside =
            || TreeError::outside(&path.join(&b'/'), "it is a second name for what is not in the image");
        if hidden(&aim) || aim == path {
            return Err(outside());
        }
        let (old, above) = aim.split_last().ok_or_else(outside)?;
        let above = hold(self.root(), above).map_err(|_| outside())?;
        match kind(above.as_fd(), old) {
            Ok(Some(FileType::RegularFile | FileType::Symlink)) => {}
            _ => return Err(outside()),
        }
        self.at(path, |parent, name| {
            remove(parent, name)?;
            linkat(&above, *old, parent, name, AtFlags::empty())
        })
    }

    /// Takes away what is at a path, if there is something. No link leads anywhere else.
    pub(crate) fn take_away(&mut self, path: &[u8]) -> Result<(), TreeError> {
        let whole = names(path)?;
        let Some((name, above)) = whole.split_last() else { return Ok(()) };
        let gone = match hold(self.root(), above) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            held => held.and_then(|held| match kind(held.as_fd(), name)? {
                Some(_) => remove(held.as_fd(), name).map(|()| true),
                None => Ok(false),
            }),
        };
        if gone.map_err(|errno| TreeError::write(path, errno))? {
            self.leave_out();
        }
        self.forget_parent();
        Ok(())
    }

    /// Does something with a name in the directory that it is in, which is made where it is missing.
    fn at<T>(
        &mut self,
        path: &[&[u8]],
        act: impl FnOnce(BorrowedFd<'_>, &[u8]) -> Result<T, Errno>,
    ) -> Result<T, TreeError> {
        let whole = path.join(&b'/');
        let Some((name, above)) = path.split_last() else {
            return Err(TreeError::outside(&whole, "it is the root itself"));
        };
        let parent = self.stand_in(above)?;
        let done = act(parent, name).map_err(|errno| TreeError::write(&whole, errno))?;
        // A directory that is held may just have been replaced.
        if self.parent.as_ref().is_some_and(|(held, _)| *held == whole || beneath_of(held, &whole)) {
            self.parent = None;
        }
        self.remember(path)?;
        Ok(done)
    }

    fn remember(&mut self, path: &[&[u8]]) -> Result<(), TreeError> {
        for depth in (1..=path.len()).rev() {
            let known = path.get(..depth).unwrap_or_default().join(&b'/');
            let bytes = known.len();
            if !self.of_layer.insert(known) {
                // Its parents are there as well.
                return Ok(());
            }
            self.remember_bytes(bytes)?;
        }
        Ok(())
    }

    /// Counts a path that is kept until the layer ends.
    pub(super) fn remember_bytes(&mut self, bytes: usize) -> Result<(), TreeError> {
        let most = self.caps.entries.saturating_mul(PATH).max(FEW_PATHS);
        self.remembered = self.remembered.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
        if self.remembered > most { Err(TreeError::LongPaths { most }) } else { Ok(()) }
    }

    fn stand_in(&mut self, names: &[&[u8]]) -> Result<BorrowedFd<'_>, TreeError> {
        let path = names.join(&b'/');
        if self.parent.as_ref().is_none_or(|(known, _)| *known != path) {
            let held = match hold(self.root(), names) {
                Err(Errno::NOENT) => self.make_all(names)?,
                held => held.map_err(|errno| no_way(&path, errno))?,
            };
            self.parent = Some((path, held));
        }
        self.parent.as_ref().map(|(_, held)| held.as_fd()).ok_or(TreeError::BadArchive)
    }

    fn make_all(&mut self, names: &[&[u8]]) -> Result<OwnedFd, TreeError> {
        let path = names.join(&b'/');
        let failed = |errno| no_way(&path, errno);
        let mut at = hold(self.root(), &[]).map_err(failed)?;
        for name in names {
            // One entry may imply hundreds of directories.
            if kind(at.as_fd(), name).map_err(failed)?.is_none() {
                self.count()?;
            }
            at = make_and_hold(at.as_fd(), name).map_err(failed)?;
        }
        Ok(at)
    }
}

/// Why a directory cannot be stood in.
fn no_way(path: &[u8], errno: Errno) -> TreeError {
    match errno {
        Errno::LOOP => TreeError::outside(path, "one of its directories is a link"),
        Errno::NOTDIR => TreeError::outside(path, "one of its directories is a file or a link"),
        errno => TreeError::write(path, errno),
    }
}

/// Whether a path lies where no box ever looks into the image.
pub(crate) fn hidden(path: &[&[u8]]) -> bool {
    path.len() > 1 && path.first().is_some_and(|top| NEVER_SHOWN.contains(top))
}

fn beneath_of(path: &[u8], above: &[u8]) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Gives a finished file its mode and date. A date that this file system does not know is not worth a failure.
pub(crate) fn finish(file: &File, path: &[u8], mode: u32, modified_seconds: i64) -> Result<(), TreeError> {
    fchmod(file, Mode::from_raw_mode((mode & 0o755) | 0o600))
        .map_err(|errno| TreeError::Write { path: shown(path), source: errno.into() })?;
    let time = Timespec { tv_sec: modified_seconds, tv_nsec: 0 };
    futimens(file, &Timestamps { last_access: time, last_modification: time }).ok();
    Ok(())
}
