//! A tar stream, unpacked beneath a directory.
//!
//! Whatever the archive says, nothing is made outside that directory: no absolute path, no `..`, and no step over a link,
//! neither one of the archive nor one that was there. Links are made as texts and never followed; pipes and devices are
//! refused; owners and set-id bits are not taken over.

use std::os::fd::{AsFd, OwnedFd};

use blastbox_wire::agent::{Fault, FileSay, Parents};
use blastbox_wire::limits::MAX_PATH;
use blastbox_wire::tar::Header;
use blastbox_wire::untar::{Part, Untar};
use rustix::fs::{AtFlags, Mode, Timespec, Timestamps};
use rustix::io::Errno;

use super::desk::{Desk, Next, Step, finished};
use super::place::{Places, hold_beneath, make_and_hold, stat_at};
use super::trouble::Trouble;
use super::write::{create, write_all};

/// An archive that is being unpacked.
#[derive(Debug)]
pub(super) struct Unpack {
    base: OwnedFd,
    untar: Untar,
    /// The directory that the last entry was in.
    parent: Option<(Vec<u8>, OwnedFd)>,
    file: Option<Half>,
    bytes_left: u64,
    entries_left: u64,
    bytes: u64,
}

/// A file that is not whole yet.
#[derive(Debug)]
struct Half {
    file: OwnedFd,
    name: Vec<u8>,
    mode: u32,
    modified_seconds: i64,
}

impl Unpack {
    pub(super) fn open(
        places: &Places,
        path: &[u8],
        parents: Parents,
        most_bytes: u64,
        most_entries: u64,
    ) -> Result<Self, Trouble> {
        let base = match (places.directory(path), parents) {
            (Err(Trouble(Fault::NotFound, _)), Parents::Make) => {
                let (parent, name) = places.parent(path, parents)?;
                make_and_hold(parent.as_fd(), &name)?
            }
            (found, _) => found?,
        };
        let (bytes_left, entries_left) = (most_bytes, most_entries);
        Ok(Self { base, untar: Untar::new(), parent: None, file: None, bytes_left, entries_left, bytes: 0 })
    }

    pub(super) fn step(&mut self, desk: &mut Desk<'_>) -> Step {
        let Some(piece) = desk.inflow.take() else {
            if !desk.inflow.is_over() {
                return Ok(Next::Sleep);
            }
            return if self.untar.is_whole() {
                Ok(finished(self.bytes))
            } else {
                Err(Trouble::bad_archive())
            };
        };
        let mut rest = piece.as_slice();
        while let Some(part) = self.untar.next(&mut rest).map_err(|_| Trouble::bad_archive())? {
            match part {
                Part::Entry(header) => self.begin(header)?,
                Part::Content(content) => {
                    if let Some(half) = &self.file {
                        write_all(half.file.as_fd(), content)?;
                        self.bytes = self.bytes.saturating_add(u64::try_from(content.len()).unwrap_or(0));
                    }
                }
                Part::EntryEnd => self.end()?,
            }
        }
        desk.say(FileSay::Taken { bytes: u32::try_from(piece.len()).unwrap_or(u32::MAX) });
        Ok(Next::Again)
    }

    fn begin(&mut self, header: Header) -> Result<(), Trouble> {
        self.entries_left =
            self.entries_left.checked_sub(1).ok_or(Trouble(Fault::TooMany, Errno::OVERFLOW))?;
        let path = beneath(&header.path)?;
        let Some((&name, parents)) = path.split_last() else {
            // The directory itself.
            return if header.kind == b'5' { Ok(()) } else { Err(Trouble::bad_archive()) };
        };
        self.stand_in(parents)?;
        let Some((_, parent)) = &self.parent else { return Err(Errno::BADF.into()) };
        match header.kind {
            b'0' | 0 | b'7' => {
                let left = self.bytes_left.checked_sub(header.size);
                self.bytes_left = left.ok_or(Trouble(Fault::TooMany, Errno::FBIG))?;
                make_room(parent, name)?;
                let file = create(parent.as_fd(), name, Mode::RUSR | Mode::WUSR)?;
                let (mode, modified_seconds) = (header.mode & 0o777, header.modified_seconds);
                self.file = Some(Half { file, name: name.to_vec(), mode, modified_seconds });
            }
            b'5' => {
                // Its owner must be able to fill it.
                let mode = Mode::from_raw_mode(header.mode & 0o777 | 0o700);
                match rustix::fs::mkdirat(parent, name, mode) {
                    Err(Errno::EXIST) if is_directory(parent, name) => {}
                    made => made?,
                }
            }
            b'2' => {
                if header.link.is_empty() || header.link.contains(&0) || header.link.len() >= MAX_PATH {
                    return Err(Trouble::bad_archive());
                }
                make_room(parent, name)?;
                rustix::fs::symlinkat(header.link.as_slice(), parent, name)?;
            }
            b'1' => {
                let target = beneath(&header.link)?;
                let Some((&old, above)) = target.split_last() else { return Err(Trouble::bad_archive()) };
                let above = hold_beneath(self.base.as_fd(), &above.join(&b'/'))?;
                make_room(parent, name)?;
                rustix::fs::linkat(&above, old, parent, name, AtFlags::empty())?;
            }
            // Devices, pipes, and whatever else has been thought of.
            _ => return Err(Trouble::bad_archive()),
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Trouble> {
        if let Some(Half { file, name: _, mode, modified_seconds }) = self.file.take() {
            rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
            let time = Timespec { tv_sec: modified_seconds, tv_nsec: 0 };
            // A date that this file system does not know is not worth a failure.
            rustix::fs::futimens(&file, &Timestamps { last_access: time, last_modification: time }).ok();
        }
        Ok(())
    }

    /// Opens the directory that an entry is in, and makes it where an archive has left it out.
    fn stand_in(&mut self, parents: &[&[u8]]) -> Result<(), Trouble> {
        let path = parents.join(&b'/');
        if self.parent.as_ref().is_some_and(|(known, _)| *known == path) {
            return Ok(());
        }
        let parent = match hold_beneath(self.base.as_fd(), &path) {
            Err(Errno::NOENT) => {
                let mut at = hold_beneath(self.base.as_fd(), b"")?;
                for name in parents {
                    at = make_and_hold(at.as_fd(), name)?;
                }
                at
            }
            found => found?,
        };
        self.parent = Some((path, parent));
        Ok(())
    }

    /// Half a file is worse than none.
    pub(super) fn abandon(self) {
        if let (Some(Half { name, .. }), Some((_, parent))) = (self.file, self.parent) {
            rustix::fs::unlinkat(parent, name, AtFlags::empty()).ok();
        }
    }
}

/// The names of a path that stays beneath its beginning.
fn beneath(path: &[u8]) -> Result<Vec<&[u8]>, Trouble> {
    if path.starts_with(b"/") || path.contains(&0) || path.is_empty() {
        return Err(Trouble::bad_archive());
    }
    if path.len() >= MAX_PATH {
        return Err(Errno::NAMETOOLONG.into());
    }
    let names: Vec<_> =
        path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&b"..".as_slice()) { Err(Trouble::bad_archive()) } else { Ok(names) }
}

fn is_directory(parent: &OwnedFd, name: &[u8]) -> bool {
    let stat = stat_at(parent.as_fd(), name);
    stat.is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// Takes away what has the name, so that nothing is ever written through a link. A directory stays, and is an error.
fn make_room(parent: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}
