//! The name of a tree: SHA-256 over a canonical list of everything in it.
//!
//! One line for each entry, each directory before what is in it, names in the order of their bytes. Dates and owners are not part of it: the store gives all of them to
//! its owner, and two copies of the same files shall have the same name.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;

use blastbox_wire::event::Hash;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, readlinkat, statat};
use sha2::{Digest as _, Sha256};

use super::beneath::list;

/// The first line: another form must never have the same digests.
const FORM: &[u8] = b"blastbox-tree 1\n";
const PIECE: usize = 128 * 1024;
const ENTER: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// What a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sum {
    pub(crate) digest: Hash,
    /// Bytes of content; a file with several names counts once.
    pub(crate) bytes: u64,
    /// Files, directories and links.
    pub(crate) entries: u64,
}

/// Reads everything beneath a directory.
pub(crate) fn digest(root: BorrowedFd<'_>, tell: &mut dyn FnMut(u64)) -> io::Result<Sum> {
    let mut all =
        Walk { hasher: Sha256::new(), bytes: 0, entries: 0, piece: vec![0; PIECE], linked: HashMap::new() };
    all.hasher.update(FORM);
    let top = openat(root, ".", ENTER | OFlags::DIRECTORY, Mode::empty())?;
    let inside = reversed(top.as_fd())?;
    let mut way: Vec<(OwnedFd, Vec<u8>, Vec<Vec<u8>>)> = vec![(top, Vec::new(), inside)];
    while let Some((here, path, left)) = way.last_mut() {
        let Some(name) = left.pop() else {
            way.pop();
            continue;
        };
        let whole = if path.is_empty() { name.clone() } else { [path.as_slice(), &name].join(&b'/') };
        if all.entry(here.as_fd(), &name, &whole)? {
            let below = openat(&*here, name.as_slice(), ENTER | OFlags::DIRECTORY, Mode::empty())?;
            let inside = reversed(below.as_fd())?;
            way.push((below, whole, inside));
        }
        tell(all.bytes);
    }
    let digest = Hash::from_bytes(all.hasher.finalize().into());
    Ok(Sum { digest, bytes: all.bytes, entries: all.entries })
}

fn reversed(at: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut names = list(at)?;
    names.reverse();
    Ok(names)
}

struct Walk {
    hasher: Sha256,
    bytes: u64,
    entries: u64,
    piece: Vec<u8>,
    /// Files with more names to come. One large file with a million of them would be read a million times.
    linked: HashMap<(u64, u64), Linked>,
}

struct Linked {
    size: u64,
    content: Hash,
    /// Names that were not seen yet.
    left: u64,
}

impl Walk {
    /// Adds one entry. `true`: it is a directory, and what is in it follows.
    fn entry(&mut self, at: BorrowedFd<'_>, name: &[u8], path: &[u8]) -> io::Result<bool> {
        self.entries = self.entries.saturating_add(1);
        let stat = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let mode = stat.st_mode & 0o7777;
        let mut line = Vec::with_capacity(path.len().saturating_add(128));
        let kind = FileType::from_raw_mode(stat.st_mode);
        match kind {
            FileType::Directory => write!(line, "directory {mode:o}")?,
            FileType::Symlink => {
                let text = readlinkat(at, name, Vec::new())?;
                write!(line, "link {}", Hash::of([text.as_bytes()]))?;
            }
            FileType::RegularFile => {
                let file = openat(at, name, ENTER, Mode::empty())?;
                let mode = fstat(&file)?.st_mode & 0o7777;
                let (size, content) = self.linked(File::from(file))?;
                write!(line, "file {mode:o} {size} {content}")?;
            }
            // None of these is ever made: somebody else was here.
            _ => write!(line, "other {:o} {}", stat.st_mode, stat.st_rdev)?,
        }
        // The path comes last, ended by a zero, which no path has: no two entries share a line.
        line.push(b' ');
        line.extend_from_slice(path);
        line.push(0);
        self.hasher.update(&line);
        Ok(kind == FileType::Directory)
    }

    /// The content of a file, read under the first of its names.
    fn linked(&mut self, file: File) -> io::Result<(u64, Hash)> {
        let found = file.metadata()?;
        let (which, others) = ((found.dev(), found.ino()), found.nlink().saturating_sub(1));
        if let Some(known) = self.linked.get_mut(&which) {
            let found = (known.size, known.content);
            known.left = known.left.saturating_sub(1);
            if known.left == 0 {
                self.linked.remove(&which);
            }
            return Ok(found);
        }
        let (size, content) = self.content(file)?;
        if others > 0 {
            self.linked.insert(which, Linked { size, content, left: others });
        }
        Ok((size, content))
    }

    fn content(&mut self, mut file: File) -> io::Result<(u64, Hash)> {
        let (mut hasher, mut size) = (Sha256::new(), 0_u64);
        loop {
            let count = file.read(&mut self.piece)?;
            let Some(piece @ [_, ..]) = self.piece.get(..count) else { break };
            hasher.update(piece);
            size = size.saturating_add(u64::try_from(count).unwrap_or(0));
        }
        self.bytes = self.bytes.saturating_add(size);
        Ok((size, Hash::from_bytes(hasher.finalize().into())))
    }
}
