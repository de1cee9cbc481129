//! Boxes that were put to sleep, on disk: one file for each, in a directory that lets nobody else in.
//!
//! ```text
//! "blastbox snapshot 1\n" · bytes of the note (4) · note · SHA-256 of that much (32)
//! · the machine, as in a template, bound to everything that a copy relies on · SHA-256 of all of it (32)
//! ```
//! The note is its owner's: whose it is, of which box, with which policy and image. What is in the machine was chosen by whoever
//! ran in it; it is carried as bytes, and read by nobody but a machine in a jail. A file appears whole or not at all.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use blastbox_wire::event::Hash;
use rustix::fs::{Mode, OFlags, open, statvfs};

use super::fresh;
use super::template::Template;
use super::templates::{Hashed, RUN, Wrong, read_machine, write_machine};

const MAGIC: &[u8; 20] = b"blastbox snapshot 1\n";
const END: &str = "snapshot";
/// Longest note.
const MOST_NOTE: usize = 1 << 20;

/// Why a snapshot cannot be used or kept.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotFault {
    /// Bytes are missing, or there are too many.
    #[error("the snapshot is cut short or has grown")]
    Truncated,
    /// It is not what was written.
    #[error("the snapshot was altered: its checksum does not hold")]
    Altered,
    /// Of another machine, or of another version of blastbox.
    #[error(
        "the snapshot is bound to another machine: its image, kernel, agent, engine (or build of it) or processor is not what it was"
    )]
    Foreign,
    /// A file.
    #[error("the snapshot could not be written or read")]
    Place(#[source] io::Error),
}

impl From<Wrong> for SnapshotFault {
    fn from(wrong: Wrong) -> Self {
        match wrong {
            Wrong::Truncated => Self::Truncated,
            Wrong::Altered => Self::Altered,
            Wrong::Foreign => Self::Foreign,
            Wrong::Read(source) => Self::Place(source),
        }
    }
}

impl From<io::Error> for SnapshotFault {
    fn from(error: io::Error) -> Self {
        Wrong::from(error).into()
    }
}

/// The snapshots in a directory.
#[derive(Debug, Clone)]
pub struct Snapshots {
    path: PathBuf,
}

impl Snapshots {
    /// Those in this directory, which need not be there yet.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Only for names that are safe as those of files.
    fn file(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.{END}"))
    }

    /// Keeps one, and says how many bytes that are. Whole or not at all: what does not fit on the disk leaves nothing.
    pub fn keep(
        &self,
        name: &str,
        note: &[u8],
        bound: &Hash,
        template: &Template,
    ) -> Result<u64, SnapshotFault> {
        if note.len() > MOST_NOTE {
            // Nobody could read it again.
            return Err(SnapshotFault::Place(io::ErrorKind::InvalidInput.into()));
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(SnapshotFault::Place)?;
        fresh::sweep(&self.path);
        let write = |file: &File| {
            let mut to = Hashed::new(BufWriter::with_capacity(RUN, file));
            to.write_all(MAGIC)?;
            to.write_all(&u32::try_from(note.len()).unwrap_or(u32::MAX).to_be_bytes())?;
            to.write_all(note)?;
            let digest = to.so_far();
            to.write_all(&digest)?;
            write_machine(to, bound, template)
        };
        fresh::file_for(&self.path, &format!("{name}.{END}"), 0o600, write).map_err(SnapshotFault::Place)?;
        // Its name as well: it is the only one that its owner has.
        let named = File::open(&self.path).and_then(|folder| folder.sync_all());
        let kept = named.and_then(|()| fs::metadata(self.file(name)));
        kept.map(|found| found.len()).map_err(|error| {
            // Its owner is never told the name, and would pay for it.
            fs::remove_file(self.file(name)).ok();
            SnapshotFault::Place(error)
        })
    }

    /// What its owner wrote, and how many bytes all of it has. `None`: there is none. The machine in it is not looked at.
    pub fn note(&self, name: &str) -> Result<Option<(Vec<u8>, u64)>, SnapshotFault> {
        let Some(file) = self.open(name)? else { return Ok(None) };
        let bytes = file.metadata().map_err(SnapshotFault::Place)?.len();
        Ok(Some((head(&mut Hashed::new(BufReader::new(&file)))?, bytes)))
    }

    /// The machine in it, whole and checked. It is read into memory; a changed file changes nothing afterwards.
    pub fn find(&self, name: &str, bound: &Hash, bytes: u64) -> Result<Option<Template>, SnapshotFault> {
        let Some(file) = self.open(name)? else { return Ok(None) };
        let mut from = Hashed::new(BufReader::with_capacity(RUN, &file));
        head(&mut from)?;
        Ok(Some(read_machine(from, bound, bytes)?))
    }

    /// The names of all.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let list = fs::read_dir(&self.path).into_iter().flatten().flatten();
        list.filter_map(|entry| self.named(&entry.file_name())).collect()
    }

    /// The name of the one that lies in a file of this name; `None`: none does.
    #[must_use]
    pub fn named(&self, file: &OsStr) -> Option<String> {
        Some(file.to_str()?.strip_suffix(&format!(".{END}"))?.to_owned())
    }

    /// Bytes of all of them, also of those that cannot be read.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.names().iter().map(|name| self.length(name)).fold(0, u64::saturating_add)
    }

    /// Bytes of this one; 0: there is none.
    #[must_use]
    pub fn length(&self, name: &str) -> u64 {
        fs::symlink_metadata(self.file(name)).map_or(0, |found| found.len())
    }

    /// Whether there is certainly none. Where nobody can look there may be one.
    #[must_use]
    pub fn is_missing(&self, name: &str) -> bool {
        fs::symlink_metadata(self.file(name)).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Takes one away. `false`: there was none.
    pub fn remove(&self, name: &str) -> Result<bool, SnapshotFault> {
        match fs::remove_file(self.file(name)) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(SnapshotFault::Place(error)),
        }
    }

    /// Takes away what a process left that was killed while it wrote, however short ago. Only for one that keeps none yet, and that
    /// nobody shares the directory with.
    pub fn sweep(&self) {
        fresh::sweep_all(&self.path);
    }

    /// Bytes that are free where they lie; `None`: nobody can say.
    #[must_use]
    pub fn room(&self) -> Option<u64> {
        let there = self.path.ancestors().find(|path| path.exists())?;
        let found = statvfs(there).ok()?;
        found.f_bavail.checked_mul(found.f_frsize)
    }

    fn open(&self, name: &str) -> Result<Option<File>, SnapshotFault> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match open(self.file(name), flags, Mode::empty()) {
            Ok(file) => Ok(Some(File::from(file))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(errno) => Err(SnapshotFault::Place(errno.into())),
        }
    }
}

fn head(from: &mut Hashed<impl io::Read>) -> Result<Vec<u8>, Wrong> {
    if from.exactly::<20>()? != *MAGIC {
        return Err(Wrong::Foreign);
    }
    let length = usize::try_from(u32::from_be_bytes(from.exactly()?)).unwrap_or(usize::MAX);
    if length > MOST_NOTE {
        return Err(Wrong::Altered);
    }
    let mut note = vec![0; length];
    from.read_exact(&mut note)?;
    let digest = from.so_far();
    if from.exactly::<32>()? != digest {
        return Err(Wrong::Altered);
    }
    Ok(note)
}

#[cfg(test)]
mod tests {
    use super::super::template::blank;
    use super::*;
    use crate::testing::Scratch;

    fn template() -> Template {
        let memory = blank(1 << 20).unwrap();
        rustix::io::pwrite(&memory, b"a live box", 8192).unwrap();
        Template::seal(memory, b"state".to_vec()).unwrap()
    }

    #[test]
    fn what_is_kept_comes_back_and_what_was_altered_is_refused_by_name() {
        let scratch = Scratch::new("snapshots");
        let kept = Snapshots::at(&scratch.path().join("a/b"));
        let bound = Hash::from_bytes([1; 32]);
        assert!(kept.names().is_empty() && kept.note("one").unwrap().is_none());
        let bytes = kept.keep("one", b"note", &bound, &template()).unwrap();
        assert_eq!(kept.names(), ["one"]);
        assert_eq!(kept.note("one").unwrap(), Some((b"note".to_vec(), bytes)));
        // What cannot be read takes room as well.
        fs::write(kept.file("two"), b"nonsense").unwrap();
        assert!(kept.note("two").is_err());
        assert_eq!(kept.bytes(), bytes + 8);
        assert!(kept.remove("two").unwrap());
        let found = kept.find("one", &bound, 1 << 20).unwrap().unwrap();
        let mut read = [0; 10];
        rustix::io::pread(found.memory(), &mut read, 8192).unwrap();
        assert_eq!((&read, found.state()), (b"a live box", &b"state"[..]));

        let fault = |change: &dyn Fn(&mut Vec<u8>)| {
            let path = kept.file("one");
            let whole = fs::read(&path).unwrap();
            let mut other = whole.clone();
            change(&mut other);
            fs::write(&path, other).unwrap();
            let found = kept.find("one", &bound, 1 << 20).map(drop);
            fs::write(&path, whole).unwrap();
            found.unwrap_err()
        };
        assert!(matches!(fault(&|bytes| bytes.truncate(bytes.len() - 9)), SnapshotFault::Truncated));
        assert!(matches!(fault(&|bytes| bytes.push(0)), SnapshotFault::Truncated));
        assert!(matches!(fault(&|bytes| bytes[25] ^= 1), SnapshotFault::Altered));
        assert!(matches!(fault(&|bytes| *bytes.last_mut().unwrap() ^= 1), SnapshotFault::Altered));
        assert!(matches!(fault(&|bytes| bytes[18] = b'2'), SnapshotFault::Foreign));
        let other = kept.find("one", &Hash::from_bytes([2; 32]), 1 << 20);
        assert!(matches!(other, Err(SnapshotFault::Foreign)));
        assert!(matches!(kept.find("one", &bound, 2 << 20), Err(SnapshotFault::Foreign)));
        assert!(kept.remove("one").unwrap() && !kept.remove("one").unwrap());
        assert!(kept.room().unwrap() > 0);
    }

    #[test]
    fn what_was_half_written_a_moment_ago_is_swept_at_the_start_and_what_is_whole_stays() {
        let scratch = Scratch::new("swept");
        let kept = Snapshots::at(scratch.path());
        kept.keep("one", b"note", &Hash::from_bytes([1; 32]), &template()).unwrap();
        let half = scratch.path().join(".new-word-two.snapshot");
        fs::write(&half, b"half").unwrap();
        let held = File::open(&half).unwrap();
        rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        kept.sweep();
        assert!(half.exists(), "somebody writes it");
        drop(held);
        kept.sweep();
        assert!(!half.exists());
        assert_eq!(kept.names(), ["one"]);
    }
}
