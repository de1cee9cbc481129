//! A directory to fetch and unpack kernels in, gone at the end, and what killed commands have left of such.

use std::fs::{self, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use blastbox_images::machine::MachineError;
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::problem::Problem;

/// A directory of one's own, gone at the end. It is locked, so that the next one sees whether its owner was killed.
pub(super) struct Workplace {
    pub(super) path: PathBuf,
    lock: File,
}

/// What begins the name of one.
const WORKPLACE: &str = ".kernel-";
/// A younger one may belong to somebody who has not come to lock it.
const GRACE: Duration = Duration::from_secs(60);

impl Workplace {
    /// Beside the kernels, without those that killed commands have left there.
    pub(super) fn new(store: &Path) -> Result<Self, Problem> {
        sweep(store, rustix::process::geteuid().as_raw());
        Self::make(store)
    }

    /// In a directory of everybody, for another user. Nothing in it is to be believed: that user may change it at any moment.
    pub(super) fn of(folder: &Path, user: u32) -> Result<Self, Problem> {
        // Killed between the two, ours have not become theirs.
        sweep(folder, user);
        sweep(folder, rustix::process::geteuid().as_raw());
        let made = Self::make(folder)?;
        let path = made.path.clone();
        std::os::unix::fs::lchown(&path, Some(user), None).map_err(|source| MachineError::Place {
            tried: "hand over",
            path,
            source,
        })?;
        Ok(made)
    }

    fn make(folder: &Path) -> Result<Self, Problem> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let path = folder.join(format!("{WORKPLACE}{}-{now}", std::process::id()));
        let failed = |source| MachineError::Place { tried: "make", path: path.clone(), source };
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        let lock = File::open(&path).map_err(failed)?;
        lock.lock().map_err(failed)?;
        Ok(Self { path, lock })
    }
}

/// Removes what killed commands have left in a directory, of this owner.
fn sweep(folder: &Path, owner: u32) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(WORKPLACE));
        if ours && is_left(&entry, owner) {
            fs::remove_dir_all(entry.path()).ok();
        }
    }
}

/// Whether whoever made it is gone.
fn is_left(entry: &fs::DirEntry, owner: u32) -> bool {
    let old = |found: fs::Metadata| {
        let age = found.modified().ok().and_then(|at| at.elapsed().ok());
        found.is_dir() && found.uid() == owner && age.is_some_and(|age| age > GRACE)
    };
    // In a directory of everybody something else may take the name after it was looked at.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    entry.metadata().is_ok_and(old)
        && openat(CWD, entry.path(), flags, Mode::empty())
            .is_ok_and(|held| File::from(held).try_lock().is_ok())
}

impl Drop for Workplace {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.path).ok();
        self.lock.unlock().ok();
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) struct Place(pub(in super::super) PathBuf);

    impl Place {
        pub(in super::super) fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("kernel-verb-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    #[test]
    fn a_workplace_that_a_killed_command_left_is_swept_and_one_in_use_is_not() {
        let place = Place::new("swept");
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        let left = place.0.join(".kernel-1");
        fs::create_dir(&left).unwrap();
        fs::write(left.join("half.deb"), "half").unwrap();
        File::open(&left).unwrap().set_modified(long_ago).unwrap();
        let used = Workplace::new(&place.0).unwrap();
        assert!(!left.exists());
        File::open(&used.path).unwrap().set_modified(long_ago).unwrap();
        let next = Workplace::new(&place.0).unwrap();
        assert!(used.path.exists() && next.path.exists());
        let path = used.path.clone();
        drop(used);
        assert!(!path.exists());
    }

    #[test]
    fn one_that_was_handed_to_another_user_is_swept_too() {
        if !rustix::process::geteuid().is_root() {
            return blastbox_skips::skip_this("only root hands a directory to somebody");
        }
        let place = Place::new("theirs");
        let theirs = Workplace::of(&place.0, 65_534).unwrap();
        let path = theirs.path.clone();
        assert_eq!(fs::metadata(&path).unwrap().uid(), 65_534);
        let long_ago = SystemTime::now() - Duration::from_secs(3600);
        File::open(&path).unwrap().set_modified(long_ago).unwrap();
        drop(Workplace::of(&place.0, 65_534).unwrap());
        assert!(path.exists(), "somebody holds it");
        // As a kill would: nothing is removed, and the lock goes.
        let Workplace { path: _, lock } = &theirs;
        lock.unlock().unwrap();
        drop(Workplace::of(&place.0, 65_533).unwrap());
        assert!(path.exists(), "it is nobody's that is swept for");
        drop(Workplace::of(&place.0, 65_534).unwrap());
        assert!(!path.exists());
    }
}
