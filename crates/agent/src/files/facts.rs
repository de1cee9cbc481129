//! What is known of an entry, for the host.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use blastbox_wire::agent::{Beyond, Entry, EntryKind, Link};
use blastbox_wire::limits::MAX_PATH;
use rustix::fs::{FileType, OFlags, Stat};
use rustix::io::Errno;

/// Everything about an entry except a link's content.
pub(super) fn plain(path: Vec<u8>, stat: &Stat) -> Entry {
    let nanos = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Entry {
        path,
        kind: kind(stat),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified_nanos: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanos),
        link: None,
    }
}

/// Everything about an entry of an open directory.
pub(super) fn at(directory: BorrowedFd<'_>, name: &[u8], path: Vec<u8>) -> Result<Entry, Errno> {
    let stat = super::place::stat_at(directory, name)?;
    let mut entry = plain(path, &stat);
    if entry.kind == EntryKind::Link {
        entry.link = Some(link(directory, name)?);
    }
    Ok(entry)
}

/// What an entry is.
pub(super) fn kind(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Other,
    }
}

/// A link's text, and a look at where it leads. Nothing there is opened.
fn link(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Link, Errno> {
    let text = text(directory, name)?;
    // A link is resolved from where it stands; the box's root is the agent's own.
    let look = OFlags::PATH | OFlags::CLOEXEC;
    let found = super::resolve::from(directory, name, look);
    let beyond = found.ok().and_then(|found| {
        let stat = rustix::fs::fstat(&found).ok()?;
        Some(Beyond { kind: kind(&stat), mode: stat.st_mode & 0o7777, path: path_of(found.as_fd()) })
    });
    Ok(Link { text, beyond })
}

/// A link's text.
pub(super) fn text(directory: BorrowedFd<'_>, name: &[u8]) -> Result<Vec<u8>, Errno> {
    let text = rustix::fs::readlinkat(directory, name, Vec::new())?.into_bytes();
    if text.len() > MAX_PATH { Err(Errno::NAMETOOLONG) } else { Ok(text) }
}

/// Where something is, by the kernel's word. Empty where /proc is not there to ask.
fn path_of(found: BorrowedFd<'_>) -> Vec<u8> {
    let asked = format!("/proc/self/fd/{}", found.as_raw_fd());
    let path = rustix::fs::readlink(asked, Vec::new()).map(std::ffi::CString::into_bytes).unwrap_or_default();
    if path.len() > MAX_PATH { Vec::new() } else { path }
}
