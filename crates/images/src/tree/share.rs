//! Files that two trees of a store have in common, kept once.
//!
//! Trees are never changed once they are stored, so that a file may have a name in several of them. Only what is the same in
//! every way that the digest names (place, mode, content) is shared.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, linkat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::beneath::list;
use super::{Shared, TreeError};

const ENTER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// What a shared file is called for a moment. Should the tree have something of that name, nothing is shared there.
const PASSING: &[u8] = b"\x01shared";
const PIECE: usize = 64 * 1024;

/// Replaces files of the first tree by those of the second that are the same, and tells what that saved.
pub(crate) fn share(tree: BorrowedFd<'_>, with: BorrowedFd<'_>) -> Result<Shared, TreeError> {
    let mut shared = Shared::default();
    let failed =
        |errno: Errno| TreeError::Read { what: "a tree of the store".to_owned(), source: errno.into() };
    let enter = |at: BorrowedFd<'_>, name: &[u8]| openat(at, name, ENTER, Mode::empty()).map_err(failed);
    let level = |here: OwnedFd, there: OwnedFd| {
        let names = list(here.as_fd()).map_err(failed)?;
        Ok::<_, TreeError>(Level { here, there, names })
    };
    // Depth first: two descriptors for each level of a tree, whose depth is bounded, and not for each directory.
    let mut way = vec![level(enter(tree, b".")?, enter(with, b".")?)?];
    while let Some(Level { here, there, names }) = way.last_mut() {
        let Some(name) = names.pop() else {
            way.pop();
            continue;
        };
        let about = |at: &OwnedFd| statat(at, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW);
        let (Ok(ours), Ok(theirs)) = (about(here), about(there)) else { continue };
        match (FileType::from_raw_mode(ours.st_mode), FileType::from_raw_mode(theirs.st_mode)) {
            (FileType::Directory, FileType::Directory) => {
                let below = level(enter(here.as_fd(), &name)?, enter(there.as_fd(), &name)?)?;
                way.push(below);
            }
            (FileType::RegularFile, FileType::RegularFile)
                // Too many names of one file, another file system: then it is kept twice.
                if is_like(&ours, &theirs)
                    && same(here, there, &name)
                    && swap(here, there, &name).is_ok() =>
            {
                shared.add(u64::try_from(ours.st_size).unwrap_or(0));
            }
            _ => {}
        }
    }
    Ok(shared)
}

/// The same directory in both trees, and what is still to be looked at there.
struct Level {
    here: OwnedFd,
    there: OwnedFd,
    names: Vec<Vec<u8>>,
}

/// A file of several names is left alone: they would come apart.
fn is_like(ours: &Stat, theirs: &Stat) -> bool {
    ours.st_mode == theirs.st_mode
        && ours.st_size == theirs.st_size
        && ours.st_nlink == 1
        && ours.st_ino != theirs.st_ino
}

fn same(here: &OwnedFd, there: &OwnedFd, name: &[u8]) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |at: &OwnedFd| openat(at, name, flags, Mode::empty()).map(File::from);
    let (Ok(mut ours), Ok(mut theirs)) = (open(here), open(there)) else { return false };
    let (mut one, mut other) = (vec![0; PIECE], vec![0; PIECE]);
    loop {
        let Ok(count) = ours.read(&mut one) else { return false };
        let (Some(one), Some(other)) = (one.get(..count), other.get_mut(..count)) else { return false };
        if theirs.read_exact(other).is_err() || one != other {
            return false;
        }
        if count == 0 {
            return true;
        }
    }
}

fn swap(here: &OwnedFd, there: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    linkat(there, name, here, PASSING, AtFlags::empty())?;
    renameat(here, PASSING, here, name).inspect_err(|_| {
        unlinkat(here, PASSING, AtFlags::empty()).ok();
    })
}
