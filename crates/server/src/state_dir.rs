//! The directory where a daemon keeps what outlives it. Private, and one daemon's at a time.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::DoorError;

const LOCK: &str = "daemon.lock";

/// A state directory, opened.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
}

/// A daemon's hold on its state directory.
#[derive(Debug)]
pub struct StateLock {
    // Closing it, however we end, is what lets go.
    _file: File,
}

impl StateDir {
    /// Opens it, or makes it. One that others may enter is closed; one that belongs to others is refused.
    pub fn open(path: &Path) -> Result<Self, DoorError> {
        let failed = |tried, source| DoorError::State { tried, path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| failed("make", e))?;
        let found = fs::metadata(path).map_err(|source| failed("look at", source))?;
        if found.uid() != rustix::process::geteuid().as_raw() {
            return Err(failed("use", io::ErrorKind::PermissionDenied.into()));
        }
        if found.mode() & 0o077 != 0 {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700)).map_err(|e| failed("close", e))?;
        }
        Ok(Self { path: path.to_owned() })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps other daemons out, until it is dropped or this process ends, however it ends.
    pub fn lock(&self) -> Result<StateLock, DoorError> {
        let failed = |source| DoorError::State { tried: "lock", path: self.path.clone(), source };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.path.join(LOCK));
        let file = file.map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(StateLock { _file: file }),
            Err(Errno::WOULDBLOCK) => Err(DoorError::StateTaken { path: self.path.clone() }),
            Err(errno) => Err(failed(errno.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn it_is_private_and_one_daemons_at_a_time() {
        let scratch = Scratch::new("state");
        let path = scratch.path().join("a/b");
        fs::create_dir_all(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let state = StateDir::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        let lock = state.lock().unwrap();
        assert!(matches!(state.lock(), Err(DoorError::StateTaken { .. })));
        drop(lock);
        assert!(state.lock().is_ok());
    }
}
