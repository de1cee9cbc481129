//! Paths beneath a directory of ours. The only room of this crate that walks through a tree that somebody else described.
//!
//! Every directory on the way is resolved by the kernel beneath the root and never over a link, so that neither a link of
//! the archive nor one of an earlier layer leads anywhere.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, chmodat, mkdirat, openat, openat2, statat, unlinkat,
};
use rustix::io::Errno;

use super::TreeError;

/// Longest path in an image, and as deep as it may be.
pub(crate) const MOST_BYTES: usize = 4095;
/// Most levels of directories.
pub(crate) const MOST_LEVELS: usize = 256;

const STAY: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);
const HOLD: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The names of a path that stays beneath its beginning; none for the root itself.
pub(crate) fn names(path: &[u8]) -> Result<Vec<&[u8]>, TreeError> {
    if path.starts_with(b"/") {
        return Err(TreeError::outside(path, "it is absolute"));
    }
    if path.contains(&0) {
        return Err(TreeError::outside(path, "it has a zero byte in it"));
    }
    let names: Vec<_> =
        path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&b"..".as_slice()) {
        return Err(TreeError::outside(path, "it has `..` in it"));
    }
    if path.len() > MOST_BYTES || names.len() > MOST_LEVELS {
        let path = super::error::shown(path);
        return Err(TreeError::TooDeep { path, bytes: MOST_BYTES, depth: MOST_LEVELS });
    }
    Ok(names)
}

/// Holds a directory beneath the root, by its names.
pub(crate) fn hold(root: BorrowedFd<'_>, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
    let path = if names.is_empty() { b".".to_vec() } else { names.join(&b'/') };
    // The kernel says "again" when something was renamed meanwhile, which nobody but us does here.
    (0..8)
        .map(|_| openat2(root, path.as_slice(), HOLD, Mode::empty(), STAY))
        .find(|held| !matches!(held, Err(Errno::AGAIN)))
        .unwrap_or(Err(Errno::AGAIN))
}

/// Makes a directory, or finds it made, and holds it. Anything else in its place is an error, links included.
pub(crate) fn make_and_hold(at: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    let mode = Mode::from_raw_mode(0o755);
    match mkdirat(at, name, mode) {
        // Whatever the mask of whoever runs us is: a box's user must be able to enter, and the digest be the same.
        Ok(()) => chmodat(at, name, mode, AtFlags::empty())?,
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    openat(at, name, HOLD, Mode::empty())
}

/// What has this name in an open directory, if anything has.
pub(crate) fn kind(at: BorrowedFd<'_>, name: &[u8]) -> Result<Option<FileType>, Errno> {
    match statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(FileType::from_raw_mode(stat.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The names in a directory that is held, sorted.
pub(crate) fn list(at: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    Ok(list_at_most(at, usize::MAX)?.unwrap_or_default())
}

/// The same of a directory that a stranger may have filled: `None` where there are more, which are not read.
pub(crate) fn list_at_most(at: BorrowedFd<'_>, most: usize) -> Result<Option<Vec<Vec<u8>>>, Errno> {
    let listing = openat(at, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut found = Vec::new();
    for entry in Dir::new(listing)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if found.len() >= most {
            return Ok(None);
        }
        found.push(name.to_vec());
    }
    found.sort_unstable();
    Ok(Some(found))
}

/// Takes away what has this name, with everything beneath it, without following a link. Nothing there is fine.
pub(crate) fn remove(at: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
    match unlinkat(at, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    // A list instead of calls within calls: a tree may be deep. Each directory is listed once: it may be wide, too.
    let enter = |at: BorrowedFd<'_>, name: &[u8]| {
        let held = openat(at, name, HOLD, Mode::empty())?;
        let inside = list(held.as_fd())?;
        Ok::<_, Errno>((held, name.to_vec(), inside))
    };
    let mut way = vec![enter(at, name)?];
    while let Some((here, name, inside)) = way.last_mut() {
        let Some(next) = inside.pop() else {
            let name = std::mem::take(name);
            way.pop();
            let parent = way.last().map_or(at, |(held, _, _)| held.as_fd());
            unlinkat(parent, name.as_slice(), AtFlags::REMOVEDIR)?;
            continue;
        };
        match unlinkat(&*here, next.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR | Errno::PERM) => {
                let deeper = enter(here.as_fd(), &next)?;
                way.push(deeper);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
