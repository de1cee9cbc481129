//! A directory of this host, copied into a tree.
//!
//! Trust: whoever owns the directory, who may change it meanwhile. Nothing is opened over a link, nothing but regular files
//! is read, and nothing that could wait is waited for.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, copy};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::beneath::{list, names};
use super::error::shown;
use super::writer::{finish, hidden};
use super::{TreeError, TreeWriter};

/// To read a directory or file of which only the name is trusted.
const ENTER: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// A directory on the way down, and what of it is left.
struct Level {
    here: OwnedFd,
    path: Vec<u8>,
    left: Vec<Vec<u8>>,
}

impl Level {
    fn enter(at: BorrowedFd<'_>, name: &[u8], path: Vec<u8>) -> Result<Self, TreeError> {
        let here = openat(at, name, ENTER | OFlags::DIRECTORY, Mode::empty()).map_err(unreadable(&path))?;
        let left = list(here.as_fd()).map_err(unreadable(&path))?;
        Ok(Self { here, path, left })
    }
}

/// What becomes of the content of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// It is copied.
    Copied,
    /// It is the same file, which nobody ever changes: one of another tree of the store.
    Shared,
}

/// Copies everything in a directory to a place in the tree, but for these names at its top.
pub(crate) fn copy_directory(
    writer: &mut TreeWriter,
    from: BorrowedFd<'_>,
    to: &[&[u8]],
    but: &[&str],
    content: Content,
    tell: &mut dyn FnMut(u64),
) -> Result<(), TreeError> {
    let mut firsts: HashMap<(u64, u64), Vec<u8>> = HashMap::new();
    let mut way = vec![Level::enter(from, b".", to.join(&b'/'))?];
    if let Some(top) = way.first_mut() {
        top.left.retain(|name| !but.iter().any(|but| but.as_bytes() == name.as_slice()));
    }
    while let Some(Level { here, path, left }) = way.last_mut() {
        let Some(name) = left.pop() else {
            way.pop();
            continue;
        };
        let whole = if path.is_empty() { name.clone() } else { [path.as_slice(), &name].join(&b'/') };
        writer.count()?;
        let parts = names(&whole)?;
        if hidden(&parts) {
            writer.leave_out();
            continue;
        }
        let stat = statat(&*here, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW).map_err(unreadable(&whole))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                writer.directory(&parts, stat.st_mode)?;
                let below = Level::enter(here.as_fd(), &name, whole)?;
                way.push(below);
            }
            FileType::Symlink => {
                let text = readlinkat(&*here, name.as_slice(), Vec::new()).map_err(unreadable(&whole))?;
                writer.link(&parts, text.as_bytes())?;
            }
            FileType::RegularFile => {
                let key = (stat.st_dev, stat.st_ino);
                match firsts.get(&key) {
                    Some(first) => writer.hard_link(&parts, first)?,
                    None if content == Content::Shared && writer.adopt(&parts, here.as_fd(), &stat)? => {}
                    None => copy_file(writer, here.as_fd(), &name, &parts)?,
                }
                if stat.st_nlink > 1 {
                    firsts.entry(key).or_insert(whole);
                }
            }
            FileType::CharacterDevice | FileType::BlockDevice => {
                return Err(TreeError::Device { path: shown(&whole) });
            }
            // Pipes and sockets have no content, and nobody would be at their other end.
            _ => writer.leave_out(),
        }
        tell(writer.made().bytes);
    }
    Ok(())
}

/// Copies one file.
pub(crate) fn copy_file(
    writer: &mut TreeWriter,
    at: BorrowedFd<'_>,
    name: &[u8],
    to: &[&[u8]],
) -> Result<(), TreeError> {
    let path = to.join(&b'/');
    let (file, stat) = open_file(at, name).map_err(unreadable(&path))?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let mut made = writer.file(to, size)?;
    // No more than was counted: whoever owns the source may be writing to it.
    copy(&mut file.take(size), &mut made).map_err(|source| TreeError::write(&path, source))?;
    finish(&made, &path, stat.st_mode, stat.st_mtime)
}

fn open_file(at: BorrowedFd<'_>, name: &[u8]) -> Result<(File, Stat), Errno> {
    let file = openat(at, name, ENTER, Mode::empty())?;
    let stat = fstat(&file)?;
    // Something else may have taken the name meanwhile.
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::INVAL);
    }
    Ok((File::from(file), stat))
}

fn unreadable(path: &[u8]) -> impl Fn(Errno) -> TreeError + '_ {
    move |errno| TreeError::Read { what: format!("{:?}", shown(path)), source: errno.into() }
}
