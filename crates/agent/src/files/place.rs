//! From a path to a descriptor: the only room that gives paths of the host to the kernel.
//!
//! Paths are resolved inside the box's root as the box's user, never through the magic links of /proc: there they would
//! mean the agent itself. Nothing but regular files and directories is opened, and nothing is opened in a way that could
//! wait: not for the other end of a pipe, nor for somebody's lease.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_wire::agent::{Links, Parents};
use blastbox_wire::limits::MAX_PATH;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::resolve;
use super::trouble::Trouble;

/// What relative paths are relative to.
const HOME: &[u8] = b"/home/user/";
/// Mode of directories that are made on the way.
const PARENT: Mode = Mode::from_raw_mode(0o755);

/// Never waits, never becomes anybody's terminal, never inherited.
pub(super) const CALM: OFlags =
    OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC).union(OFlags::LARGEFILE);
/// For a look at something, without opening it.
const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
/// For the directory that an entry is in.
const HOLD: OFlags = LOOK.union(OFlags::DIRECTORY);
/// To read a directory of which only the name is trusted.
pub(super) const ENTER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
/// The box's root, and where the agent stands.
#[derive(Debug)]
pub(super) struct Places {
    root: OwnedFd,
    here: OwnedFd,
}

impl Places {
    pub(super) fn open() -> Result<Self, Errno> {
        let open = |path: &str| rustix::fs::open(path, HOLD, Mode::empty());
        Ok(Self { root: open("/")?, here: open(".")? })
    }

    fn resolve(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        resolve::in_root(self.root.as_fd(), path, flags, mode)
    }

    /// A look at an entry. What comes back cannot be read or written.
    pub(super) fn look(&self, path: &[u8], links: Links) -> Result<OwnedFd, Trouble> {
        let flags = match links {
            Links::Follow => LOOK,
            Links::Keep => LOOK | OFlags::NOFOLLOW,
        };
        Ok(self.resolve(&full(path)?, flags, Mode::empty())?)
    }

    /// A directory, to be read.
    pub(super) fn directory(&self, path: &[u8]) -> Result<OwnedFd, Trouble> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | CALM;
        Ok(self.resolve(&full(path)?, flags, Mode::empty())?)
    }

    /// A regular file, to be read.
    pub(super) fn file(&self, path: &[u8]) -> Result<(OwnedFd, Stat), Trouble> {
        must_be_regular(self.look(path, Links::Follow)?.as_fd())?;
        let file = self.resolve(&full(path)?, OFlags::RDONLY | CALM, Mode::empty())?;
        // Once more: between both something else may have taken the name.
        let stat = must_be_regular(file.as_fd())?;
        Ok((file, stat))
    }

    /// A regular file, to be written; made where it is not there. The content stays as it is.
    pub(super) fn file_to_write(&self, path: &[u8], mode: Mode, more: OFlags) -> Result<OwnedFd, Trouble> {
        let found = self.look(path, Links::Follow);
        match &found {
            Ok(there) => drop(must_be_regular(there.as_fd())?),
            Err(Trouble(_, Errno::NOENT)) => {}
            Err(trouble) => return Err(*trouble),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | CALM | more;
        let file = self.resolve(&full(path)?, flags, mode)?;
        must_be_regular(file.as_fd())?;
        if found.is_err() {
            // The agent's umask is not the host's wish. Only the owner may; whoever was faster has decided.
            rustix::fs::fchmod(&file, mode).ok();
        }
        Ok(file)
    }

    /// The directory that an entry is in, and its name there. The entry itself is not looked at.
    pub(super) fn parent(&self, path: &[u8], parents: Parents) -> Result<(OwnedFd, Vec<u8>), Trouble> {
        let path = full(path)?;
        let (parent, name) = split(&path)?;
        match self.resolve(parent, HOLD, Mode::empty()) {
            Err(Errno::NOENT) if parents == Parents::Make => Ok((self.make_all(parent)?, name.to_vec())),
            parent => Ok((parent?, name.to_vec())),
        }
    }

    /// Makes a directory and whatever is missing above it.
    fn make_all(&self, path: &[u8]) -> Result<OwnedFd, Trouble> {
        // Up to what is there …
        let mut there = path;
        let mut at = loop {
            there = above(there);
            match self.resolve(there, HOLD, Mode::empty()) {
                Err(Errno::NOENT) if there != b"/" => {}
                found => break found?,
            }
        };
        // … and down again.
        let missing = path.get(there.len()..).unwrap_or_default();
        for name in missing.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            at = make_and_hold(at.as_fd(), name)?;
        }
        Ok(at)
    }

    /// Watches a directory that is open: by standing in it, since the kernel takes only a path for that.
    pub(super) fn watch(
        &self,
        inotify: BorrowedFd<'_>,
        directory: BorrowedFd<'_>,
        what: rustix::fs::inotify::WatchFlags,
    ) -> Result<i32, Errno> {
        rustix::process::fchdir(directory)?;
        let watch = rustix::fs::inotify::add_watch(inotify, c".", what);
        rustix::process::fchdir(&self.here)?;
        watch
    }
}

/// Makes a directory, or finds it made, and holds it. A link in its place is not followed.
pub(super) fn make_and_hold(at: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(at, name, PARENT) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    rustix::fs::openat(at, name, HOLD | OFlags::NOFOLLOW, Mode::empty())
}

/// The directory that holds an entry beneath a directory of ours.
pub(super) fn hold_beneath(base: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b".".as_slice() } else { path };
    resolve::beneath(base, path, HOLD)
}

/// What an entry of an open directory is.
pub(super) fn stat_at(at: BorrowedFd<'_>, name: &[u8]) -> Result<Stat, Errno> {
    rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Opens a regular file of an open directory, to be read.
pub(super) fn file_at(at: BorrowedFd<'_>, name: &[u8]) -> Result<(OwnedFd, Stat), Trouble> {
    if !FileType::from_raw_mode(stat_at(at, name)?.st_mode).is_file() {
        return Err(Trouble::not_regular());
    }
    let file = rustix::fs::openat(at, name, OFlags::RDONLY | OFlags::NOFOLLOW | CALM, Mode::empty())?;
    let stat = must_be_regular(file.as_fd())?;
    Ok((file, stat))
}

/// Files of /proc are regular by name only: some of them are the agent's own memory and settings, and the kernel lets
/// every process at its own.
fn must_be_regular(file: BorrowedFd<'_>) -> Result<Stat, Trouble> {
    let stat = rustix::fs::fstat(file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if rustix::fs::fstatfs(file)?.f_type != rustix::fs::PROC_SUPER_MAGIC => {
            Ok(stat)
        }
        FileType::Directory => Err(Errno::ISDIR.into()),
        _ => Err(Trouble::not_regular()),
    }
}

/// An absolute path. A zero byte would cut it, and make it another path than was asked for.
fn full(path: &[u8]) -> Result<Vec<u8>, Trouble> {
    if path.is_empty() {
        return Err(Trouble::bad_path(Errno::NOENT));
    }
    if path.contains(&0) {
        return Err(Trouble::bad_path(Errno::INVAL));
    }
    let full = if path.starts_with(b"/") { path.to_vec() } else { [HOME, path].concat() };
    if full.len() >= MAX_PATH { Err(Errno::NAMETOOLONG.into()) } else { Ok(full) }
}

/// An absolute path without its last name, whatever that is.
fn above(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').unwrap_or(0);
    let slash = path.get(..=end).and_then(|path| path.iter().rposition(|&byte| byte == b'/')).unwrap_or(0);
    path.get(..slash.max(1)).unwrap_or(b"/")
}

/// What is before the last name of an absolute path, and that name.
fn split(path: &[u8]) -> Result<(&[u8], &[u8]), Trouble> {
    let end = path.iter().rposition(|&byte| byte != b'/').ok_or(Trouble::bad_path(Errno::INVAL))?;
    let path = path.get(..=end).unwrap_or_default();
    let slash = path.iter().rposition(|&byte| byte == b'/').ok_or(Trouble::bad_path(Errno::INVAL))?;
    let (parent, name) = (path.get(..slash).unwrap_or_default(), path.get(slash.saturating_add(1)..));
    match name.unwrap_or_default() {
        b"" | b"." | b".." => Err(Trouble::bad_path(Errno::INVAL)),
        name => Ok((if parent.is_empty() { b"/" } else { parent }, name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_name_is_split_off_whatever_the_slashes() {
        let parts = |path: &'static str| split(path.as_bytes()).ok();
        assert_eq!(parts("/a"), Some((&b"/"[..], &b"a"[..])));
        assert_eq!(parts("/a/b//"), Some((&b"/a"[..], &b"b"[..])));
        for path in ["/", "///", "/a/..", "/a/.", "/.."] {
            assert_eq!(parts(path), None, "{path}");
        }
    }

    #[test]
    fn the_way_up_ends_at_the_root() {
        let up = |path: &'static str| std::str::from_utf8(above(path.as_bytes())).unwrap();
        assert_eq!((up("/a/b"), up("/a/../"), up("/a"), up("/"), up("//a")), ("/a", "/a", "/", "/", "/"));
    }

    #[test]
    fn a_relative_path_is_in_the_home_and_a_zero_byte_is_no_path() {
        assert_eq!(full(b"a"), Ok(b"/home/user/a".to_vec()));
        assert_eq!(full(b"/a"), Ok(b"/a".to_vec()));
        assert_eq!(full(b"a\0b"), Err(Trouble::bad_path(Errno::INVAL)));
        assert_eq!(full(b""), Err(Trouble::bad_path(Errno::NOENT)));
        assert_eq!(full(&[b'x'; 4090]), Err(Errno::NAMETOOLONG.into()));
    }
}
