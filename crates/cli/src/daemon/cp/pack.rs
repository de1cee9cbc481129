//! A file or a directory of this host on its way into a box, as bytes or as a tar stream.
//!
//! The walk goes from one open directory to the next and follows no link: what is copied is what lies beneath the
//! directory that was named, whatever others do to it meanwhile.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use blastbox_wire::agent::{Entry, EntryKind, Link};
use blastbox_wire::limits::MAX_PATH;
use blastbox_wire::tar;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, open, openat, readlinkat, statat};
use tokio::sync::mpsc;

use super::left_out::LeftOut;
use super::progress::Counter;
use super::side::last_name;
use crate::daemon::problem::DaemonProblem;

const GULP: usize = 64 * 1024;
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

type Pieces = mpsc::Sender<io::Result<Vec<u8>>>;

/// What is copied, open already.
#[derive(Debug)]
pub(super) enum Source {
    File { path: PathBuf, file: File, mode: u32 },
    Directory { path: PathBuf, directory: OwnedFd },
}

/// Why it stopped.
enum Stop {
    /// The daemon takes nothing more, and says why.
    Unwanted,
    Failed(DaemonProblem),
}

impl Source {
    /// Opens what was named. Here, and only here, a link is followed: whoever typed it meant it.
    pub(super) fn open(path: &Path) -> Result<Self, DaemonProblem> {
        let failed = |error: io::Error| DaemonProblem::ReadHost { path: path.to_owned(), source: error };
        let opened = open(path, READ, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let found = fstat(&opened).map_err(|errno| failed(errno.into()))?;
        match FileType::from_raw_mode(found.st_mode) {
            FileType::Directory => Ok(Self::Directory { path: path.to_owned(), directory: opened }),
            FileType::RegularFile => {
                Ok(Self::File { path: path.to_owned(), file: opened.into(), mode: found.st_mode })
            }
            _ => Err(failed(io::Error::other("neither a file nor a directory"))),
        }
    }

    /// The name that it has; `None` for what is in a directory, as with `dir/.`
    pub(super) fn name(&self) -> Option<&[u8]> {
        let (Self::File { path, .. } | Self::Directory { path, .. }) = self;
        last_name(path.as_os_str().as_bytes())
    }

    /// Sends it, and says what was left out.
    pub(super) fn pour(self, to: &Pieces, counter: &Counter) -> Result<LeftOut, DaemonProblem> {
        let poured = match self {
            Self::File { path, file, .. } => {
                content(file, &path, u64::MAX, to, counter).map(|_| LeftOut::default())
            }
            Self::Directory { path, directory } => {
                let mut pack = Pack { to, counter, path, left_out: LeftOut::default(), ready: Vec::new() };
                pack.directory(directory, &mut Vec::new()).and_then(|()| pack.finish())
            }
        };
        match poured {
            Ok(left_out) => Ok(left_out),
            Err(Stop::Unwanted) => Err(DaemonProblem::CopyBroke),
            Err(Stop::Failed(problem)) => {
                // Breaks the body off: the box must not take what it has for the whole.
                to.blocking_send(Err(io::Error::other("cannot be read"))).ok();
                Err(problem)
            }
        }
    }
}

fn send(to: &Pieces, counter: &Counter, bytes: Vec<u8>) -> Result<(), Stop> {
    counter.add(bytes.len());
    to.blocking_send(Ok(bytes)).map_err(|_| Stop::Unwanted)
}

/// Sends a file's content, `most` bytes of it, and says how many there were.
fn content(mut file: File, path: &Path, most: u64, to: &Pieces, counter: &Counter) -> Result<u64, Stop> {
    let mut sent = 0;
    loop {
        let mut piece = Vec::with_capacity(GULP);
        let room = most.saturating_sub(sent).min(u64::try_from(GULP).unwrap_or(u64::MAX));
        let count = file.by_ref().take(room).read_to_end(&mut piece);
        let count = count
            .map_err(|source| Stop::Failed(DaemonProblem::ReadHost { path: path.to_owned(), source }))?;
        if count == 0 {
            return Ok(sent);
        }
        sent = sent.saturating_add(u64::try_from(count).unwrap_or(0));
        send(to, counter, piece)?;
    }
}

struct Pack<'a> {
    to: &'a Pieces,
    counter: &'a Counter,
    path: PathBuf,
    left_out: LeftOut,
    /// Headers and small things that are not sent yet.
    ready: Vec<u8>,
}

impl Pack<'_> {
    fn failed(&self, beneath: &[u8], errno: rustix::io::Errno) -> Stop {
        let path = self.path.join(std::ffi::OsStr::from_bytes(beneath));
        Stop::Failed(DaemonProblem::ReadHost { path, source: errno.into() })
    }

    fn directory(&mut self, directory: OwnedFd, path: &mut Vec<u8>) -> Result<(), Stop> {
        let entries = Dir::read_from(&directory).map_err(|errno| self.failed(path, errno))?;
        let mut names: Vec<CString> = Vec::new();
        for entry in entries {
            let name = entry.map_err(|errno| self.failed(path, errno))?.file_name().to_owned();
            if !matches!(name.as_bytes(), b"." | b"..") {
                names.push(name);
            }
        }
        // The same directory is always the same archive.
        names.sort();
        let above = path.len();
        for name in names {
            path.truncate(above);
            if above > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(name.as_bytes());
            self.entry(&directory, &name, path)?;
        }
        path.truncate(above);
        Ok(())
    }

    fn entry(&mut self, parent: &OwnedFd, name: &CString, path: &mut Vec<u8>) -> Result<(), Stop> {
        let Ok(found) = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW) else {
            return self.leave_out(path);
        };
        if path.len() >= MAX_PATH {
            return Err(self.failed(path, rustix::io::Errno::NAMETOOLONG));
        }
        let kind = FileType::from_raw_mode(found.st_mode);
        match kind {
            FileType::Symlink => {
                let Ok(text) = readlinkat(parent, name, Vec::new()) else { return self.leave_out(path) };
                let link = Link { text: text.into_bytes(), beyond: None };
                self.header(&entry(path, EntryKind::Link, &found, Some(link)))
            }
            FileType::RegularFile | FileType::Directory => {
                // Not by its path, and not through a link that has taken the name meanwhile.
                let Ok(opened) = openat(parent, name, READ | OFlags::NOFOLLOW, Mode::empty()) else {
                    return self.leave_out(path);
                };
                let Ok(found) = fstat(&opened) else { return self.leave_out(path) };
                match FileType::from_raw_mode(found.st_mode) {
                    FileType::Directory => {
                        self.header(&entry(path, EntryKind::Directory, &found, None))?;
                        self.directory(opened, path)
                    }
                    FileType::RegularFile => self.file(opened, path, &found),
                    _ => self.leave_out(path),
                }
            }
            // Pipes, sockets, devices.
            _ => self.leave_out(path),
        }
    }

    fn file(&mut self, file: OwnedFd, path: &[u8], found: &Stat) -> Result<(), Stop> {
        let entry = entry(path, EntryKind::File, found, None);
        self.header(&entry)?;
        self.flush()?;
        let shown = self.path.join(std::ffi::OsStr::from_bytes(path));
        let sent = content(file.into(), &shown, entry.size, self.to, self.counter)?;
        // It has become shorter: zeros instead, since its length is said already.
        let mut missing = entry.size.saturating_sub(sent);
        while missing > 0 {
            let now = usize::try_from(missing).unwrap_or(GULP).min(GULP);
            send(self.to, self.counter, vec![0; now])?;
            missing = missing.saturating_sub(u64::try_from(now).unwrap_or(u64::MAX));
        }
        self.ready.resize(tar::padding(entry.size), 0);
        Ok(())
    }

    fn header(&mut self, entry: &Entry) -> Result<(), Stop> {
        tar::write(entry, &mut self.ready);
        if self.ready.len() >= GULP { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Stop> {
        if self.ready.is_empty() {
            Ok(())
        } else {
            send(self.to, self.counter, std::mem::take(&mut self.ready))
        }
    }

    fn leave_out(&mut self, path: &[u8]) -> Result<(), Stop> {
        self.left_out.add(path);
        Ok(())
    }

    /// Two blocks of zeros end an archive.
    fn finish(mut self) -> Result<LeftOut, Stop> {
        self.ready.resize(self.ready.len().saturating_add(2 * tar::BLOCK), 0);
        self.flush()?;
        Ok(self.left_out)
    }
}

fn entry(path: &[u8], kind: EntryKind, found: &Stat, link: Option<Link>) -> Entry {
    let nanos = i128::from(found.st_mtime) * 1_000_000_000;
    Entry {
        path: path.to_vec(),
        kind,
        size: if kind == EntryKind::File { u64::try_from(found.st_size).unwrap_or(0) } else { 0 },
        mode: found.st_mode & 0o777,
        // Inside, everything belongs to the box's user.
        uid: 0,
        gid: 0,
        modified_nanos: i64::try_from(nanos).unwrap_or(0),
        link,
    }
}
