//! A tree of files as a disk that kernels can read and nobody can write: squashfs 4.0, without compression.
//!
//! Without compression, because a disk is read far more often than it is made, from the page cache that all boxes of
//! an image share. Everything belongs to root. Whoever starts a guest does not have to run a foreign program for it.

mod tables;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, openat2, readlinkat, statat};

use crate::tree::Caps;
use crate::tree::beneath::{MOST_LEVELS, list_at_most};
use tables::{Metadata, NodeKind, listing};

/// Bytes of a piece of a file.
const BLOCK: usize = 128 * 1024;
const BLOCK_LOG: u16 = 17;
const BLOCK_SIZE: u32 = 1 << BLOCK_LOG;
const SUPERBLOCK: usize = 96;
/// Set in the size of a piece that is not compressed.
const PLAIN: u32 = 1 << 24;
/// Inodes, files, fragments and ids are plain; there are no fragments and no extended attributes.
const FLAGS: u16 = 0x1 | 0x2 | 0x8 | 0x10 | 0x200 | 0x800;
/// What kernels read whole.
const PAGE: u64 = 4096;
const NONE: u64 = u64::MAX;
/// Nor into what is mounted somewhere beneath: a jail does not show it either.
const STAY: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);
/// What an entry takes in the tables beside its name, at most.
const ENTRY: u64 = 128;
/// The tables of as many files as an image may have. They are put together in memory.
const MOST_TABLES: u64 = 512 << 20;

/// One entry, with everything beneath it.
#[derive(Debug)]
struct Node {
    name: Vec<u8>,
    mode: u16,
    /// Its owner and group, by their places in the table of ids.
    owner: (u16, u16),
    time: u32,
    number: u32,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Directory(Vec<Node>),
    File {
        start: u64,
        size: u64,
        pieces: Vec<u32>,
    },
    /// One more name of a file that an entry before this one has.
    Again,
    Link(Vec<u8>),
}

/// How large a disk may become.
#[derive(Debug, Clone, Copy)]
struct Most {
    /// Bytes of files, each counted once however many names it has, and holes as if they were none.
    content: u64,
    /// Bytes of everything else.
    tables: u64,
    /// Entries.
    entries: u32,
    /// Names: a file with several is one entry.
    names: u64,
    /// Bytes of one file.
    file: u64,
}

/// Whose everything on the disk is.
#[derive(Debug, Clone, Copy)]
enum Owners {
    /// Root's. What is neither file, directory nor link is left out: no store has it.
    Root,
    /// Whatever belongs to this user and group of the host is the payload's, and the rest nobody's, as where a directory of the
    /// host is shown. What is neither file, directory nor link is refused.
    Payload(u32, u32),
}

impl Owners {
    fn of(self, stat: &rustix::fs::Stat) -> (u16, u16) {
        match self {
            Self::Root => (0, 0),
            Self::Payload(user, group) => (u16::from(stat.st_uid != user), u16::from(stat.st_gid != group)),
        }
    }

    fn ids(self) -> &'static [u32] {
        match self {
            Self::Root => &[0],
            Self::Payload(..) => &[1000, 65_534],
        }
    }
}

/// How much of a caller's directory is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyCaps {
    /// Bytes of files.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: u64,
    /// Bytes of one file.
    pub file: u64,
}

/// Writes a caller's directory to an empty file. What does not fit, or is no file, directory or link, is refused by name.
pub(super) fn write_workspace(root: BorrowedFd<'_>, to: &File, caps: &CopyCaps) -> io::Result<()> {
    let entries = u32::try_from(caps.entries).unwrap_or(u32::MAX);
    let most =
        Most { content: caps.bytes, tables: MOST_TABLES, entries, names: caps.entries, file: caps.file };
    let stat = rustix::fs::fstat(root)?;
    write_within(root, to, most, Owners::Payload(stat.st_uid, stat.st_gid))
}

/// Writes everything beneath `root` to an empty file. What is larger than an image may be is refused.
pub(super) fn write(root: BorrowedFd<'_>, to: &File) -> io::Result<()> {
    let most = Most {
        content: Caps::default().bytes,
        tables: MOST_TABLES,
        entries: u32::MAX,
        names: u64::MAX,
        file: u64::MAX,
    };
    write_within(root, to, most, Owners::Root)
}

fn write_within(root: BorrowedFd<'_>, to: &File, left: Most, owners: Owners) -> io::Result<()> {
    let mut disk = Disk {
        to: io::BufWriter::new(to),
        at: SUPERBLOCK as u64,
        count: 0,
        left,
        owners,
        linked: HashMap::new(),
        names: HashMap::new(),
        settled: HashMap::new(),
        inodes: Metadata::default(),
        listings: Metadata::default(),
        piece: vec![0; BLOCK],
    };
    disk.to.write_all(&[0; SUPERBLOCK])?;
    let number = disk.next_number()?;
    let stat = rustix::fs::fstat(root)?;
    let content = Content::Directory(disk.gather(root, 0)?);
    let (mode, time) = (mode(stat.st_mode), time(stat.st_mtime));
    let top = Node { name: Vec::new(), mode, owner: owners.of(&stat), time, number, content };
    let root = disk.settle(&top, disk.count.saturating_add(1))?;
    disk.finish(root)
}

struct Disk<'a> {
    to: io::BufWriter<&'a File>,
    /// How much is written.
    at: u64,
    /// How many entries there are.
    count: u32,
    /// How much it may still grow.
    left: Most,
    owners: Owners,
    /// Files with more names than one, by device and inode: a large one with a million names is written once.
    linked: HashMap<(u64, u64), u32>,
    /// How many names each of these has on the disk.
    names: HashMap<u32, u32>,
    /// Where their inodes are.
    settled: HashMap<u32, u64>,
    inodes: Metadata,
    listings: Metadata,
    piece: Vec<u8>,
}

impl Disk<'_> {
    fn next_number(&mut self) -> io::Result<u32> {
        let next = self.count.checked_add(1).filter(|count| *count <= self.left.entries);
        self.count = next.ok_or_else(too_large)?;
        Ok(self.count)
    }

    /// Reads a directory, and writes what its files hold on the way.
    fn gather(&mut self, directory: BorrowedFd<'_>, level: usize) -> io::Result<Vec<Node>> {
        if level > MOST_LEVELS {
            return Err(io::Error::other("its directories are too deep"));
        }
        let mut nodes = Vec::new();
        // What could not be written down anyway is not read either.
        let most = (self.left.tables / ENTRY).min(self.left.names);
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        for name in list_at_most(directory, most)?.ok_or_else(too_large)? {
            self.left.names = self.left.names.checked_sub(1).ok_or_else(too_large)?;
            let stat = statat(directory, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let open = |more| openat2(directory, name.as_slice(), flags | more, Mode::empty(), STAY);
            let kind = FileType::from_raw_mode(stat.st_mode);
            if !matches!(kind, FileType::Directory | FileType::RegularFile | FileType::Symlink) {
                match self.owners {
                    // The store holds nothing else; what somebody put there by hand is not shown.
                    Owners::Root => continue,
                    Owners::Payload(..) => {
                        return Err(io::Error::other("it is neither file, directory nor link"))
                            .map_err(below(&name));
                    }
                }
            }
            self.take_tables(ENTRY.saturating_add(name.len() as u64))?;
            let which = (stat.st_dev, stat.st_ino);
            let several = kind == FileType::RegularFile && stat.st_nlink > 1;
            let known = if several { self.linked.get(&which).copied() } else { None };
            let number = match known {
                Some(number) => number,
                None => self.next_number()?,
            };
            if several {
                self.linked.insert(which, number);
                let names = self.names.entry(number).or_default();
                *names = names.saturating_add(1);
            }
            let content = match kind {
                _ if known.is_some() => Content::Again,
                FileType::Directory => {
                    let inside = open(OFlags::DIRECTORY).map_err(|errno| below(&name)(errno.into()))?;
                    is_still(&stat, &inside).map_err(below(&name))?;
                    let inside = self.gather(inside.as_fd(), level.saturating_add(1));
                    Content::Directory(inside.map_err(below(&name))?)
                }
                FileType::Symlink => {
                    let target = readlinkat(directory, name.as_slice(), Vec::new())?.into_bytes();
                    self.take_tables(target.len() as u64)?;
                    Content::Link(target)
                }
                _ => {
                    let opened = open(OFlags::empty()).map_err(io::Error::from);
                    let opened = opened.and_then(|file| is_still(&stat, &file).map(|()| file));
                    let taken = opened.and_then(|file| self.file(File::from(file)));
                    taken.map_err(below(&name))?
                }
            };
            let (mode, time, owner) = (mode(stat.st_mode), time(stat.st_mtime), self.owners.of(&stat));
            nodes.push(Node { name, mode, owner, time, number, content });
        }
        Ok(nodes)
    }

    fn take_tables(&mut self, bytes: u64) -> io::Result<()> {
        self.left.tables = self.left.tables.checked_sub(bytes).ok_or_else(too_large)?;
        Ok(())
    }

    fn file(&mut self, mut from: File) -> io::Result<Content> {
        let size =
            Some(from.metadata()?.len()).filter(|size| *size <= self.left.file).ok_or_else(too_large)?;
        self.left.content = self.left.content.checked_sub(size).ok_or_else(too_large)?;
        self.take_tables(size.div_ceil(BLOCK as u64).saturating_mul(4))?;
        let (start, mut pieces, mut left) = (self.at, Vec::new(), size);
        while left > 0 {
            let length = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK);
            let piece = self.piece.get_mut(..length).unwrap_or_default();
            from.read_exact(piece)?;
            if piece.iter().all(|byte| *byte == 0) {
                pieces.push(0);
            } else {
                self.to.write_all(piece)?;
                self.at = self.at.saturating_add(length as u64);
                pieces.push(u32::try_from(length).map_err(|_| io::ErrorKind::FileTooLarge)? | PLAIN);
            }
            left = left.saturating_sub(length as u64);
        }
        Ok(Content::File { start, size, pieces })
    }

    /// Writes the inode of an entry, behind those of everything beneath it. Says where it is.
    fn settle(&mut self, node: &Node, parent: u32) -> io::Result<u64> {
        match &node.content {
            Content::File { start, size, pieces } => {
                let mut inode = head(9, node);
                inode.extend(start.to_le_bytes());
                inode.extend(size.to_le_bytes());
                inode.extend(0_u64.to_le_bytes());
                let names = self.names.get(&node.number).copied();
                for number in [names.unwrap_or(1), u32::MAX, 0, u32::MAX] {
                    inode.extend(number.to_le_bytes());
                }
                pieces.iter().for_each(|piece| inode.extend(piece.to_le_bytes()));
                let place = self.inodes.add(&inode);
                if names.is_some() {
                    self.settled.insert(node.number, place);
                }
                Ok(place)
            }
            // In the order in which they were found: the first name is settled already.
            Content::Again => {
                let first = self.settled.get(&node.number).copied();
                first.ok_or_else(|| io::Error::other("a file has a second name and no first one"))
            }
            Content::Link(target) => {
                let mut inode = head(3, node);
                inode.extend(1_u32.to_le_bytes());
                inode.extend(u32::try_from(target.len()).unwrap_or(u32::MAX).to_le_bytes());
                inode.extend(target);
                Ok(self.inodes.add(&inode))
            }
            Content::Directory(below) => {
                let mut entries = Vec::with_capacity(below.len());
                for child in below {
                    let inode = self.settle(child, node.number)?;
                    entries.push(tables::Entry {
                        name: &child.name,
                        number: child.number,
                        inode,
                        kind: match child.content {
                            Content::Directory(_) => NodeKind::Directory,
                            Content::File { .. } | Content::Again => NodeKind::File,
                            Content::Link(_) => NodeKind::Link,
                        },
                    });
                }
                let list = listing(&entries)?;
                let place = self.listings.add(&list);
                let folders = below.iter().filter(|child| matches!(child.content, Content::Directory(_)));
                let links = u32::try_from(folders.count()).unwrap_or(u32::MAX).saturating_add(2);
                // The names `.` and `..` are counted with three bytes, and not written.
                let length =
                    u32::try_from(list.len().saturating_add(3)).map_err(|_| io::ErrorKind::FileTooLarge)?;
                let block = u32::try_from(place >> 16).map_err(|_| io::ErrorKind::FileTooLarge)?;
                let mut inode = head(8, node);
                for number in [links, length, block, parent] {
                    inode.extend(number.to_le_bytes());
                }
                inode.extend(0_u16.to_le_bytes());
                inode.extend(((place & 0xffff) as u16).to_le_bytes());
                inode.extend(u32::MAX.to_le_bytes());
                Ok(self.inodes.add(&inode))
            }
        }
    }

    fn finish(mut self, root: u64) -> io::Result<()> {
        let (inodes, listings) = (self.inodes.finish(), self.listings.finish());
        let inodes_at = self.at;
        let listings_at = inodes_at.saturating_add(inodes.len() as u64);
        let ids_at = listings_at.saturating_add(listings.len() as u64);
        // The ids, and one pointer to where they stand.
        let mut ids = Metadata::default();
        let owners = self.owners.ids();
        for id in owners {
            ids.add(&id.to_le_bytes());
        }
        let ids = ids.finish();
        let table_at = ids_at.saturating_add(ids.len() as u64);
        let used = table_at.saturating_add(8);
        for part in [&inodes, &listings, &ids, &ids_at.to_le_bytes().to_vec()] {
            self.to.write_all(part)?;
        }
        let rest = used.next_multiple_of(PAGE).saturating_sub(used);
        self.to.write_all(&vec![0; usize::try_from(rest).unwrap_or(0)])?;
        let mut first = Vec::with_capacity(SUPERBLOCK);
        for number in [0x7371_7368, self.count, 0, BLOCK_SIZE, 0] {
            first.extend(number.to_le_bytes());
        }
        for number in [1, BLOCK_LOG, FLAGS, u16::try_from(owners.len()).unwrap_or(1), 4, 0] {
            first.extend(number.to_le_bytes());
        }
        for number in [root, used, table_at, NONE, inodes_at, listings_at, NONE, NONE] {
            first.extend(number.to_le_bytes());
        }
        self.to.seek(SeekFrom::Start(0))?;
        self.to.write_all(&first)?;
        self.to.flush()
    }
}

fn too_large() -> io::Error {
    io::Error::other("its files are more than a disk for a guest may hold; use --tier jail or --tier gvisor")
}

/// Whether what was opened is what was looked at. Somebody may have put something else there meanwhile, and another's secret would be
/// shown with the owner and the rights of what was there before.
fn is_still(seen: &rustix::fs::Stat, opened: &OwnedFd) -> io::Result<()> {
    let now = rustix::fs::fstat(opened)?;
    let which = |stat: &rustix::fs::Stat| (stat.st_dev, stat.st_ino, stat.st_mode, stat.st_uid, stat.st_gid);
    if which(seen) == which(&now) {
        return Ok(());
    }
    Err(io::Error::other("it became something else while it was read"))
}

/// Says beneath which name it happened, each level once.
fn below(name: &[u8]) -> impl Fn(io::Error) -> io::Error {
    let name = String::from_utf8_lossy(name).into_owned();
    move |error| io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// What every inode begins with.
fn head(kind: u16, node: &Node) -> Vec<u8> {
    let mut head = Vec::with_capacity(64);
    for number in [kind, node.mode, node.owner.0, node.owner.1] {
        head.extend(number.to_le_bytes());
    }
    head.extend(node.time.to_le_bytes());
    head.extend(node.number.to_le_bytes());
    head
}

/// What everybody may do; never more than that.
fn mode(mode: u32) -> u16 {
    (mode & 0o777) as u16
}

fn time(seconds: i64) -> u32 {
    u32::try_from(seconds).unwrap_or(0)
}
