//! The directory of a ledger: one writer at a time, files by number, nothing through a link.

use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, flock, fsync, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::error::LedgerError;

const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
/// How often a ledger is claimed, and how long is waited in between: whoever only looks holds it for an instant.
const TRIES: u32 = 10;
const BETWEEN: Duration = Duration::from_millis(10);
const GUARDED: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW);

/// An open ledger directory.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
    path: PathBuf,
}

/// The name of a file of the ledger.
pub(super) fn name(number: u32) -> String {
    format!("ledger-{number:06}.jsonl")
}

impl Place {
    /// Opens the directory to look at it.
    pub(super) fn look(path: &Path) -> Result<Self, LedgerError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(CWD, path, flags, Mode::empty())
            .map_err(|errno| LedgerError::Directory { path: path.to_owned(), source: errno.into() })?;
        Ok(Self { directory, path: path.to_owned() })
    }

    /// Opens the directory to write, makes it where it is missing, and keeps every other writer out.
    pub(super) fn claim(path: &Path) -> Result<Self, LedgerError> {
        let failed = |source| LedgerError::Directory { path: path.to_owned(), source };
        match DirBuilder::new().mode(0o700).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | GUARDED;
        let directory = openat(CWD, path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let place = Self { directory, path: path.to_owned() };
        let found = rustix::fs::fstat(&place.directory).map_err(|errno| failed(errno.into()))?;
        place.guard(path, found.st_uid, found.st_mode)?;
        // The lock is on the open directory: it ends with the process, however that ends.
        for _ in 0..TRIES {
            match flock(&place.directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(place),
                Err(Errno::WOULDBLOCK) => thread::sleep(BETWEEN),
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        Err(LedgerError::InUse { path: path.to_owned() })
    }

    /// Whether somebody has claimed it at this moment. The look takes the lock for an instant, for which a writer that begins
    /// in it waits.
    pub(super) fn is_claimed(&self) -> bool {
        let looked = flock(&self.directory, FlockOperation::NonBlockingLockShared);
        // What cannot be let go of goes with the descriptor.
        flock(&self.directory, FlockOperation::Unlock).ok();
        looked == Err(Errno::WOULDBLOCK)
    }

    fn guard(&self, path: &Path, owner: u32, mode: u32) -> Result<(), LedgerError> {
        let why = if owner != geteuid().as_raw() {
            "it belongs to another user"
        } else if mode & 0o022 != 0 {
            "others may write to it"
        } else {
            return Ok(());
        };
        Err(LedgerError::Exposed { path: path.to_owned(), why })
    }

    /// The numbers of the files, in order.
    pub(super) fn files(&self) -> Result<Vec<u32>, LedgerError> {
        let names = self.names("ledger-", ".jsonl")?;
        let number = |text: &String| {
            let digits = text.strip_prefix("ledger-")?.strip_suffix(".jsonl")?;
            // Only the one spelling that we write: `ledger-1.jsonl` is not a file of ours.
            digits.parse().ok().filter(|number| name(*number) == *text)
        };
        let mut numbers: Vec<u32> = names.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The names that begin and end so, in order.
    pub(super) fn names(&self, begin: &str, end: &str) -> Result<Vec<String>, LedgerError> {
        let failed = |errno: Errno| LedgerError::Directory { path: self.path.clone(), source: errno.into() };
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Ok(text) = entry.file_name().to_str()
                && text.starts_with(begin)
                && text.ends_with(end)
            {
                names.push(text.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Opens a file to read it.
    pub(super) fn read(&self, name: &str) -> io::Result<File> {
        // Not to be kept waiting by a pipe of that name.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | GUARDED;
        let file = File::from(openat(&self.directory, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Opens a file of the ledger to append to it.
    pub(super) fn append(&self, number: u32) -> Result<File, LedgerError> {
        let file = name(number);
        let failed = |source| LedgerError::Read { file: file.clone(), source };
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NONBLOCK | GUARDED;
        let opened =
            openat(&self.directory, &*file, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let opened = File::from(opened);
        let found = opened.metadata().map_err(failed)?;
        if !found.is_file() {
            return Err(LedgerError::Exposed { path: self.path.join(file), why: "it is not a file" });
        }
        if found.nlink() != 1 {
            return Err(LedgerError::Exposed { path: self.path.join(file), why: "it has a second name" });
        }
        self.guard(&self.path.join(&file), found.uid(), found.mode())?;
        Ok(opened)
    }

    /// Makes the next file of the ledger. An empty one that an attempt before this one left is as good.
    pub(super) fn create(&self, number: u32) -> io::Result<File> {
        let made = match self.make(&name(number)) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let there = self.append(number).map_err(io::Error::other)?;
                if there.metadata()?.len() > 0 {
                    return Err(error);
                }
                there
            }
            made => made?,
        };
        self.sync()?;
        Ok(made)
    }

    fn make(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::APPEND | GUARDED;
        Ok(File::from(openat(&self.directory, name, flags, PRIVATE)?))
    }

    /// Keeps the bytes under this name: on the disk when it returns.
    pub(super) fn keep(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.beside(name, bytes)?.sync_all()?;
        self.rename(&format!(".{name}.new"), name)
    }

    /// Writes a small file whole or not at all, some time.
    pub(super) fn replace(&self, name: &str, text: &str) -> io::Result<()> {
        self.beside(name, text.as_bytes())?;
        Ok(renameat(&self.directory, format!(".{name}.new"), &self.directory, name)?)
    }

    fn beside(&self, name: &str, bytes: &[u8]) -> io::Result<File> {
        let beside = format!(".{name}.new");
        match unlinkat(&self.directory, &*beside, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut file = self.make(&beside)?;
        file.write_all(bytes)?;
        Ok(file)
    }

    /// Gives a file another name, for good.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        renameat(&self.directory, from, &self.directory, to)?;
        self.sync()
    }

    /// What was made or renamed here survives a power cut.
    pub(super) fn sync(&self) -> io::Result<()> {
        Ok(fsync(&self.directory)?)
    }
}
