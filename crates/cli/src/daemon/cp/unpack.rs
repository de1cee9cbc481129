//! What comes out of a box, on its way to a directory of this host.
//!
//! Every byte is chosen by an attacker. Whatever the archive says, nothing is made outside the directory that was named:
//! no absolute path, no `..`, no step over a link (neither one of the archive nor one that was there), no hard link, no
//! device, no set-id bit, and no link that leads out of what was copied. How much comes is bounded.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use blastbox_wire::limits::MAX_PATH;
use blastbox_wire::tar::Header;
use blastbox_wire::untar::{Part, Untar};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::left_out::LeftOut;
use super::progress::Counter;
use super::side::last_name;
use crate::daemon::problem::DaemonProblem;
use crate::fresh_file::FreshFile;

/// `None` is the good end; a channel that closes before it is a line that broke.
type Pieces = mpsc::Receiver<Option<Vec<u8>>>;

const HOLD: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// Where it goes.
#[derive(Debug)]
pub(super) struct Target {
    /// For messages only.
    path: PathBuf,
    /// Where it will be.
    lands: PathBuf,
    what: What,
    left: u64,
}

#[derive(Debug)]
enum What {
    /// One file, with this name in this directory.
    File { parent: OwnedFd, name: Vec<u8>, mode: u32 },
    /// Everything beneath this directory.
    Tree { base: OwnedFd },
}

impl Target {
    /// Opens where it goes. What the caller typed may lead over links; what the box says may not.
    pub(super) fn open(
        to: &Path,
        name: Option<&[u8]>,
        directory: bool,
        mode: u32,
        limit: u64,
    ) -> Result<Self, DaemonProblem> {
        let failed = |errno: Errno| DaemonProblem::WriteHost { path: to.to_owned(), source: errno.into() };
        let open = |path: &Path| rustix::fs::open(path, HOLD, Mode::empty());
        let own_name = |name: &[u8]| to.join(OsStr::from_bytes(name));
        let (parent, own, lands) = match (open(to), name) {
            // A directory that is there: into it, under its own name.
            (Ok(parent), Some(name)) => (parent, name.to_vec(), own_name(name)),
            (Ok(base), None) => {
                let (path, lands) = (to.to_owned(), to.to_owned());
                return Ok(Self { path, lands, what: What::Tree { base }, left: limit });
            }
            (Err(Errno::NOENT | Errno::NOTDIR), _) => {
                let bytes = to.as_os_str().as_bytes();
                let own = last_name(bytes).ok_or_else(|| failed(Errno::NOENT))?.to_vec();
                if bytes.ends_with(b"/") && !directory {
                    return Err(failed(Errno::NOTDIR));
                }
                let above = to.parent().filter(|above| !above.as_os_str().is_empty());
                (open(above.unwrap_or(Path::new("."))).map_err(failed)?, own, to.to_owned())
            }
            (Err(errno), _) => return Err(failed(errno)),
        };
        let path = to.to_owned();
        if !directory {
            return Ok(Self { path, lands, what: What::File { parent, name: own, mode }, left: limit });
        }
        let base = make_and_hold(&parent, &own).map_err(failed)?;
        Ok(Self { path, lands, what: What::Tree { base }, left: limit })
    }

    /// Where it will be on this host.
    pub(super) fn lands(&self) -> PathBuf {
        std::path::absolute(&self.lands).unwrap_or_else(|_| self.lands.clone())
    }

    /// Writes what comes: how many bytes, and what was left out.
    pub(super) fn fill(self, pieces: Pieces, counter: &Counter) -> Result<(u64, LeftOut), DaemonProblem> {
        let Self { path, lands: _, what, left } = self;
        let failed = |source| DaemonProblem::WriteHost { path: path.clone(), source };
        match what {
            What::File { parent, name, mode } => {
                let bytes = one_file(&parent, &name, mode, pieces, left, counter).map_err(failed)?;
                Ok((bytes.ok_or(DaemonProblem::CopyBroke)?, LeftOut::default()))
            }
            What::Tree { base } => {
                let unpack = Unpack {
                    base,
                    untar: Untar::new(),
                    parent: None,
                    file: None,
                    left,
                    bytes: 0,
                    left_out: LeftOut::default(),
                };
                unpack.run(pieces, counter).map_err(failed)?.ok_or(DaemonProblem::CopyBroke)
            }
        }
    }
}

fn too_much() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the box sends more than --limit allows")
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Writes one file without a name, and gives it the name when all is there. `None`: the line broke.
fn one_file(
    parent: &OwnedFd,
    name: &[u8],
    mode: u32,
    mut pieces: Pieces,
    mut left: u64,
    counter: &Counter,
) -> io::Result<Option<u64>> {
    let mut fresh = FreshFile::create(parent.as_fd(), permitted(mode))?;
    let mut bytes = 0_u64;
    while let Some(piece) = pieces.blocking_recv() {
        let Some(piece) = piece else { return fresh.settle(name).map(|()| Some(bytes)) };
        let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
        left = left.checked_sub(length).ok_or_else(too_much)?;
        fresh.file().write_all(&piece)?;
        bytes = bytes.saturating_add(length);
        counter.add(piece.len());
    }
    Ok(None)
}

struct Unpack {
    base: OwnedFd,
    untar: Untar,
    /// The directory that the last entry was in.
    parent: Option<(Vec<u8>, OwnedFd)>,
    file: Option<Half>,
    left: u64,
    bytes: u64,
    left_out: LeftOut,
}

/// A file that is not whole yet.
struct Half {
    fresh: FreshFile,
    name: Vec<u8>,
    modified_seconds: i64,
}

impl Unpack {
    fn run(mut self, mut pieces: Pieces, counter: &Counter) -> io::Result<Option<(u64, LeftOut)>> {
        while let Some(piece) = pieces.blocking_recv() {
            let Some(piece) = piece else {
                return if self.untar.is_whole() {
                    Ok(Some((self.bytes, self.left_out)))
                } else {
                    Err(bad("the archive is not whole"))
                };
            };
            // What is no content counts too: headers without end are a flood as well.
            let length = u64::try_from(piece.len()).unwrap_or(u64::MAX);
            self.left = self.left.checked_sub(length).ok_or_else(too_much)?;
            counter.add(piece.len());
            let mut rest = piece.as_slice();
            while let Some(part) = self.untar.next(&mut rest).map_err(|_| bad("that is no archive"))? {
                match part {
                    Part::Entry(header) => self.begin(&header)?,
                    Part::Content(content) => {
                        if let Some(half) = &mut self.file {
                            half.fresh.file().write_all(content)?;
                            let length = u64::try_from(content.len()).unwrap_or(0);
                            self.bytes = self.bytes.saturating_add(length);
                        }
                    }
                    Part::EntryEnd => self.end()?,
                }
            }
        }
        Ok(None)
    }

    fn begin(&mut self, header: &Header) -> io::Result<()> {
        let path = beneath(&header.path)?;
        let Some((&name, parents)) = path.split_last() else {
            return if header.kind == b'5' { Ok(()) } else { Err(bad("a file without a name")) };
        };
        self.stand_in(parents)?;
        let Some((_, parent)) = &self.parent else { return Err(Errno::BADF.into()) };
        match header.kind {
            b'0' | 0 | b'7' => {
                let fresh = FreshFile::create(parent.as_fd(), permitted(header.mode))?;
                let (name, modified_seconds) = (name.to_vec(), header.modified_seconds);
                self.file = Some(Half { fresh, name, modified_seconds });
            }
            b'5' => drop(make_and_hold_with(parent, name, header.mode | 0o700)?),
            b'2' if stays_inside(&header.link, parents.len()) => {
                make_room(parent, name)?;
                rustix::fs::symlinkat(header.link.as_slice(), parent, name)?;
            }
            b'2' => self.left_out.add(&header.path),
            // Boxes send none of them: hard links, devices, pipes, whatever else has been thought of.
            _ => return Err(bad("an entry that is never unpacked")),
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        if let Some(Half { mut fresh, name, modified_seconds }) = self.file.take() {
            let time = Timespec { tv_sec: modified_seconds, tv_nsec: 0 };
            // A date that this file system does not know is not worth a failure.
            rustix::fs::futimens(fresh.file(), &Timestamps { last_access: time, last_modification: time })
                .ok();
            fresh.settle(&name)?;
        }
        Ok(())
    }

    /// Opens the directory that an entry is in, and makes it where the archive has left it out.
    fn stand_in(&mut self, parents: &[&[u8]]) -> io::Result<()> {
        let path = parents.join(&b'/');
        if self.parent.as_ref().is_some_and(|(known, _)| *known == path) {
            return Ok(());
        }
        let beneath: &[u8] = if path.is_empty() { b"." } else { &path };
        let parent = match rustix::fs::openat2(&self.base, beneath, HOLD, Mode::empty(), BENEATH) {
            Err(Errno::NOENT) => {
                let mut at = rustix::io::fcntl_dupfd_cloexec(self.base.as_fd(), 0)?;
                for name in parents {
                    at = make_and_hold(&at, name)?;
                }
                at
            }
            Err(Errno::LOOP) => return Err(bad("a link is on the way, and is not followed")),
            found => found?,
        };
        self.parent = Some((path, parent));
        Ok(())
    }
}

fn make_and_hold(at: &OwnedFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    make_and_hold_with(at, name, 0o755)
}

/// Makes a directory, or finds it made, and holds it. A link in its place is not followed.
fn make_and_hold_with(at: &OwnedFd, name: &[u8], mode: u32) -> Result<OwnedFd, Errno> {
    match rustix::fs::mkdirat(at, name, permitted(mode)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    rustix::fs::openat(at, name, HOLD | OFlags::NOFOLLOW, Mode::empty())
}

/// What a box may say about who may: nothing that lets others on this host write, and no more than the caller's own mask
/// lets through, which the kernel applies where something is made. Never set afterwards, therefore.
fn permitted(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o755)
}

/// Takes away what has the name, so that nothing is ever written through a link. A directory stays, and is an error.
fn make_room(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// The names of a path that stays beneath its beginning.
fn beneath(path: &[u8]) -> io::Result<Vec<&[u8]>> {
    if path.starts_with(b"/") || path.contains(&0) || path.len() >= MAX_PATH {
        return Err(bad("a path that leads elsewhere, or is none"));
    }
    let names: Vec<_> =
        path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&b"..".as_slice()) { Err(bad("a path that leads elsewhere")) } else { Ok(names) }
}

/// Whether a link in a directory `depth` levels down can only lead to what was copied. After a name no `..` is taken: the
/// name may be a link itself, and then `..` is not where it seems.
fn stays_inside(link: &[u8], depth: usize) -> bool {
    if link.is_empty() || link.starts_with(b"/") || link.contains(&0) || link.len() >= MAX_PATH {
        return false;
    }
    let names = link.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    let names: Vec<_> = names.collect();
    let up = names.iter().take_while(|name| **name == b"..").count();
    up <= depth && !names.iter().skip(up).any(|name| **name == *b"..")
}

#[cfg(test)]
#[path = "unpack_tests.rs"]
mod tests;
