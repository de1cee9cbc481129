//! The directory of one scene: closed to every stranger, locked while it is used, removed when it is not.
//!
//! The caller may be root and the place for such directories everybody's. So the stage lies in a directory that only its
//! owner enters, and nothing is made in it by a way on which a link could lie.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::fs::{fchmod, flock, fstat, mkdirat, open, openat2, statat};

/// What every such directory is called, before its nonce: [`crate::sweep`] finds by that what it has to release.
pub(crate) const PREFIX: &str = "blastbox-escape-";
pub(crate) const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A directory that goes with its owner, and that whoever comes next removes if its owner was killed.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Mode 0700: here strangers stop; 0711 where whoever knows the next name may pass.
    outer: PathBuf,
    /// Locked as long as this lives.
    lock: OwnedFd,
    /// What is furnished.
    pub(crate) directory: PathBuf,
    inside: OwnedFd,
}

impl Stage {
    /// Makes one beneath `place`.
    pub(crate) fn new(place: &Path, nonce: &str) -> io::Result<Self> {
        Self::named(place, nonce, "stage")
    }

    /// The same, for whoever knows `word`: it cannot be listed.
    pub(crate) fn passable(place: &Path, nonce: &str, word: &str) -> io::Result<Self> {
        let stage = Self::named(place, nonce, word)?;
        fchmod(&stage.lock, Mode::from_bits_truncate(0o711))?;
        Ok(stage)
    }

    fn named(place: &Path, nonce: &str, name: &str) -> io::Result<Self> {
        let outer = place.join(format!("{PREFIX}{nonce}"));
        // Fails where anything has that name already, a link included.
        fs::DirBuilder::new().mode(0o700).create(&outer)?;
        let lock = open(&outer, DIRECTORY, Mode::empty())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let about = fstat(&lock)?;
        let own = about.st_uid == rustix::process::geteuid().as_raw();
        // A directory that was exchanged, or swept away before it was locked, is none to work in.
        if !own || about.st_mode & 0o077 != 0 || about.st_nlink == 0 {
            return Err(io::Error::other(format!("{} is not ours alone", outer.display())));
        }
        let (directory, made) = (outer.join(name), mkdirat(&lock, name, Mode::RWXU));
        made?;
        let inside = rustix::fs::openat(&lock, name, DIRECTORY, Mode::empty())?;
        Ok(Self { outer, lock, directory, inside })
    }

    fn beneath(&self, name: &str, flags: OFlags, mode: u16) -> io::Result<OwnedFd> {
        let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let mode = Mode::from_bits_truncate(mode.into());
        Ok(openat2(&self.inside, name, flags | OFlags::CLOEXEC, mode, stay)?)
    }

    /// A new directory.
    pub(crate) fn place(&self, name: &str, mode: u16) -> io::Result<()> {
        mkdirat(&self.inside, name, Mode::RWXU)?;
        let made = self.beneath(name, OFlags::RDONLY | OFlags::DIRECTORY, 0)?;
        Ok(fchmod(made, Mode::from_bits_truncate(mode.into()))?)
    }

    /// A new file that everybody who gets this far may read and write.
    pub(crate) fn put(&self, name: &str, text: &str) -> io::Result<()> {
        let made = self.beneath(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, 0o600)?;
        let mut file = File::from(made);
        file.write_all(text.as_bytes())?;
        Ok(fchmod(&file, Mode::from_bits_truncate(0o666))?)
    }

    /// The same, in directories that are made for it.
    pub(crate) fn put_deep(&self, name: &str, text: &str) -> io::Result<()> {
        for (at, _) in name.match_indices('/') {
            let parent = name.get(..at).unwrap_or_default();
            match self.place(parent, 0o755) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => made?,
            }
        }
        self.put(name, text)
    }

    /// Lets everybody who gets this far write: a box that has a descriptor of it, or its mount. Strangers do not.
    pub(crate) fn open_up(&self) -> io::Result<()> {
        Ok(fchmod(&self.inside, Mode::from_bits_truncate(0o777))?)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.outer).ok();
        // Only then may somebody else think that it is nobody's.
        flock(&self.lock, FlockOperation::Unlock).ok();
    }
}

/// The beginning of a file, if it is a plain one: whatever came out may have left a link or a pipe in its place.
pub(crate) fn beginning(path: &Path) -> Vec<u8> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut content = Vec::new();
    let Ok(file) = open(path, flags, Mode::empty()) else { return content };
    if fstat(&file).is_ok_and(|about| FileType::from_raw_mode(about.st_mode) == FileType::RegularFile) {
        File::from(file).take(64 * 1024).read_to_end(&mut content).ok();
    }
    content
}

/// Whether there is anything of that name: a link that leads nowhere, too.
pub(crate) fn is_there(path: &Path) -> bool {
    statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    /// A place of the test's own, which goes with the directory given back.
    fn place(name: &str) -> PathBuf {
        let own = std::env::temp_dir().join(format!("stage-{name}-{}", std::process::id()));
        fs::create_dir(&own).unwrap();
        own
    }

    #[test]
    fn a_stranger_cannot_enter_and_whoever_is_let_in_can_write() {
        let place = place("modes");
        let stage = Stage::new(&place, "bbx00").unwrap();
        stage.put("canary", "x").unwrap();
        stage.open_up().unwrap();
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&stage.outer), 0o700);
        assert_eq!((mode(&stage.directory), mode(&stage.directory.join("canary"))), (0o777, 0o666));
        drop(stage);
        fs::remove_dir(place).unwrap();
    }

    #[test]
    fn nothing_is_made_through_a_link_that_was_planted() {
        let place = place("links");
        let (victim, elsewhere) = (place.join("victim"), place.join("elsewhere"));
        fs::write(&victim, "as it was").unwrap();
        fs::create_dir(&elsewhere).unwrap();
        let before = fs::metadata(&victim).unwrap().mode();
        symlink(&elsewhere, place.join("blastbox-escape-bbx01")).unwrap();
        Stage::new(&place, "bbx01").unwrap_err();
        let stage = Stage::new(&place, "bbx02").unwrap();
        symlink(&victim, stage.directory.join("canary")).unwrap();
        symlink(&elsewhere, stage.directory.join("home")).unwrap();
        stage.put("canary", "overwritten").unwrap_err();
        stage.place("home", 0o777).unwrap_err();
        stage.put("home/.npmrc", "overwritten").unwrap_err();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "as it was");
        assert_eq!(fs::metadata(&victim).unwrap().mode(), before);
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        assert!(beginning(&stage.directory.join("canary")).is_empty(), "nor read through one");
        drop(stage);
        fs::remove_dir_all(place).unwrap();
    }
}
