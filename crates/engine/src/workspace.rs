//! A directory of the caller that a box may see.
//!
//! The path is used once, to open a descriptor with the caller's own rights; what the warden mounts is that descriptor.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use blastbox_wire::plan::WorkspaceAccess;

use crate::error::WorkspaceError;

/// An opened directory, and what the box may do with it.
#[derive(Debug)]
pub struct WorkspaceDir {
    path: PathBuf,
    directory: OwnedFd,
    access: WorkspaceAccess,
}

impl WorkspaceDir {
    /// Opens the directory. A file, a directory that the caller may not read, and `/` (by whatever name) are refused.
    pub fn open(path: &Path, access: WorkspaceAccess) -> Result<Self, WorkspaceError> {
        let failed = |source| WorkspaceError::Open { path: path.to_owned(), source };
        // Not blocking, so that a FIFO with this name does not hold us up; not a terminal of ours, should it be one.
        let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        let flags = i32::try_from(flags.bits()).map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
        let found = file.metadata().map_err(failed)?;
        if !found.is_dir() {
            return Err(WorkspaceError::NotADirectory { path: path.to_owned() });
        }
        let root = File::open("/").and_then(|root| root.metadata()).map_err(failed)?;
        if (root.dev(), root.ino()) == (found.dev(), found.ino()) {
            return Err(WorkspaceError::HostRoot { path: path.to_owned() });
        }
        Ok(Self { path: path.to_owned(), directory: file.into(), access })
    }

    /// What the box may do with it.
    #[must_use]
    pub fn access(&self) -> WorkspaceAccess {
        self.access
    }

    /// What it was called.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for WorkspaceDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(path: &str) -> Result<WorkspaceDir, WorkspaceError> {
        WorkspaceDir::open(Path::new(path), WorkspaceAccess::ReadOnly)
    }

    #[test]
    fn a_file_and_a_missing_directory_are_not_workspaces() {
        assert!(matches!(open("/proc/self/status"), Err(WorkspaceError::NotADirectory { .. })));
        assert!(matches!(open("/dev/null"), Err(WorkspaceError::NotADirectory { .. })));
        assert!(matches!(open("/nowhere/at/all"), Err(WorkspaceError::Open { .. })));
    }

    #[test]
    fn the_root_of_the_host_is_refused_by_whatever_name() {
        for name in ["/", "/usr/..", "/proc/self/root"] {
            assert!(matches!(open(name), Err(WorkspaceError::HostRoot { .. })), "{name}");
        }
        assert!(open("/usr").is_ok());
    }
}
