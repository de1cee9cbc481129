//! A file on its way from the host, piece by piece.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_wire::agent::{FileSay, Parents, Writing};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::desk::{Desk, Next, Step, finished};
use super::place::{CALM, Places};
use super::trouble::Trouble;

/// A file that is being written.
#[derive(Debug)]
pub(super) struct Write {
    file: OwnedFd,
    written: u64,
    /// The name that it gets when all is there.
    rename: Option<Rename>,
}

#[derive(Debug)]
struct Rename {
    parent: OwnedFd,
    from: Vec<u8>,
    to: Vec<u8>,
    mode: Mode,
}

impl Write {
    pub(super) fn open(
        places: &Places,
        path: &[u8],
        mode: u32,
        writing: Writing,
        parents: Parents,
    ) -> Result<Self, Trouble> {
        let mode = Mode::from_raw_mode(mode & 0o777);
        let to_end = |more| {
            if parents == Parents::Make {
                // Only for the directories on the way: the path is resolved once more, over links, to the file.
                places.parent(path, parents)?;
            }
            places.file_to_write(path, mode, more)
        };
        let (file, rename) = match writing {
            Writing::Truncate => {
                let file = to_end(OFlags::empty())?;
                rustix::fs::ftruncate(&file, 0)?;
                (file, None)
            }
            Writing::Append => (to_end(OFlags::APPEND)?, None),
            Writing::New => {
                let (parent, name) = places.parent(path, parents)?;
                let file = create(parent.as_fd(), &name, mode)?;
                rustix::fs::fchmod(&file, mode)?;
                (file, None)
            }
            Writing::Replace => {
                let (parent, name) = places.parent(path, parents)?;
                if super::place::stat_at(parent.as_fd(), &name)
                    .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
                {
                    // Said now, and not after the last byte.
                    return Err(Errno::ISDIR.into());
                }
                let from = passing_name()?;
                let file = create(parent.as_fd(), &from, Mode::RUSR | Mode::WUSR)?;
                (file, Some(Rename { parent, from, to: name, mode }))
            }
        };
        Ok(Self { file, written: 0, rename })
    }

    pub(super) fn step(&mut self, desk: &mut Desk<'_>) -> Step {
        if let Some(piece) = desk.inflow.take() {
            write_all(self.file.as_fd(), &piece)?;
            self.written = self.written.saturating_add(u64::try_from(piece.len()).unwrap_or(0));
            desk.say(FileSay::Taken { bytes: u32::try_from(piece.len()).unwrap_or(u32::MAX) });
            return Ok(Next::Again);
        }
        if !desk.inflow.is_over() {
            return Ok(Next::Sleep);
        }
        if let Some(Rename { parent, from, to, mode }) = &self.rename {
            rustix::fs::fchmod(&self.file, *mode)?;
            rustix::fs::renameat(parent, from, parent, to)?;
            self.rename = None;
        }
        Ok(finished(self.written))
    }

    /// Nothing half written stays under a passing name.
    pub(super) fn abandon(self) {
        if let Some(Rename { parent, from, .. }) = self.rename {
            rustix::fs::unlinkat(parent, from, AtFlags::empty()).ok();
        }
    }
}

/// Makes a file that is not there.
pub(super) fn create(parent: BorrowedFd<'_>, name: &[u8], mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | CALM;
    rustix::fs::openat(parent, name, flags, mode)
}

/// Writes all of a piece, which is short: files take what they are given.
pub(super) fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        let done = rustix::io::retry_on_intr(|| rustix::io::write(file, bytes))?;
        if done == 0 {
            return Err(Errno::IO);
        }
        bytes = bytes.get(done..).unwrap_or_default();
    }
    Ok(())
}

/// A name that nobody in the box can have guessed and taken.
fn passing_name() -> Result<Vec<u8>, Errno> {
    let mut random = [0_u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())?;
    Ok(format!(".blastbox-{:016x}.part", u64::from_ne_bytes(random)).into_bytes())
}
