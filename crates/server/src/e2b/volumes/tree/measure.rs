//! How much lies in a volume.
//!
//! Its boxes may change it meanwhile, so this is what an honest one has. Whatever cannot be looked at is an error: a box that could
//! close a part of it to our eyes would have as much as it likes there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2, statat};
use rustix::io::Errno;

use super::{DEEPEST, DIRECTORY, Tree, by_descriptor, enter, let_us_in, names, plain};

const SET_ID: u32 = 0o6000;
const FOUND: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::e2b::volumes) struct Amount {
    pub(in crate::e2b::volumes) bytes: u64,
    pub(in crate::e2b::volumes) entries: u64,
}

impl Amount {
    pub(in crate::e2b::volumes) fn plus(self, other: Self) -> Self {
        let (bytes, entries) =
            (self.bytes.saturating_add(other.bytes), self.entries.saturating_add(other.entries));
        Self { bytes, entries }
    }

    pub(in crate::e2b::volumes) fn less(self, other: Self) -> Self {
        let (bytes, entries) =
            (self.bytes.saturating_sub(other.bytes), self.entries.saturating_sub(other.entries));
        Self { bytes, entries }
    }
}

impl Tree {
    /// How much there is, and takes set-id bits away on the way: nothing in a box heeds them, and nobody else shall. Counts no
    /// further than `most`.
    pub(in crate::e2b::volumes) fn measure(&self, most: Amount) -> io::Result<Amount> {
        let mut amount = Amount::default();
        let_us_in(self.0.as_fd(), Mode::RUSR | Mode::XUSR)?;
        let directory = openat2(&self.0, ".", DIRECTORY, Mode::empty(), ResolveFlags::BENEATH)?;
        measure(directory.as_fd(), most, &mut amount, 0)?;
        Ok(amount)
    }
}

fn measure(directory: BorrowedFd<'_>, most: Amount, amount: &mut Amount, depth: usize) -> io::Result<()> {
    // One that is still readable, but not to be gone through, is opened for us again too.
    let listed = names(directory).or_else(|_| {
        let_us_in(directory, Mode::RUSR | Mode::XUSR)?;
        names(directory)
    });
    for name in unless_gone(listed)?.unwrap_or_default() {
        if amount.bytes > most.bytes || amount.entries > most.entries {
            return Ok(());
        }
        let name = Path::new(&name);
        let looked = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from);
        let Some(stat) = unless_gone(looked)? else { continue };
        amount.entries += 1;
        amount.bytes =
            amount.bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512));
        match FileType::from_raw_mode(stat.st_mode) {
            // Nobody looks deeper: that is more than there may be.
            FileType::Directory if depth >= DEEPEST => amount.entries = u64::MAX,
            FileType::Directory => {
                // One that its box has closed is opened for us again.
                let opened = enter(directory, name).or_else(|_| {
                    let found = openat2(directory, name, FOUND, Mode::empty(), ResolveFlags::BENEATH)?;
                    by_descriptor(found.as_fd(), Mode::RWXU)?;
                    enter(directory, name)
                });
                if let Some(opened) = unless_gone(opened)? {
                    measure(opened.as_fd(), most, amount, depth + 1)?;
                }
            }
            FileType::RegularFile if stat.st_mode & SET_ID != 0 => {
                // An error: its box has changed it again, and it is looked at again.
                if let Ok(file) = openat2(directory, name, FOUND, Mode::empty(), ResolveFlags::BENEATH) {
                    by_descriptor(file.as_fd(), plain(stat.st_mode)).ok();
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Boxes take away what is theirs and put other things in its place; whatever else fails would hide something.
fn unless_gone<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked.as_ref().map_err(Errno::from_io_error) {
        Err(Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => Ok(None),
        _ => looked.map(Some),
    }
}
