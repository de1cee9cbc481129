//! A directory of the caller that a box may see.
//!
//! The path is used once, to open a descriptor with the caller's own rights; what the warden mounts is that descriptor.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use blastbox_images::machine::{CopyCaps, copy_workspace};
use blastbox_wire::plan::WorkspaceAccess;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

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
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = i32::try_from(flags.bits()).map_err(|_| failed(io::ErrorKind::InvalidInput.into()))?;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
        Self::of(file, path, access)
    }

    /// Opens a directory for somebody who may name only what lies beneath `root`, or `root` itself. No link on the way is
    /// followed, whoever put it there: it would lead anywhere with the daemon's rights.
    pub fn open_beneath(root: &Path, below: &Path, access: WorkspaceAccess) -> Result<Self, WorkspaceError> {
        let path = root.join(below);
        let failed = |source| WorkspaceError::Open { path: path.clone(), source };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let top = File::open(root).map_err(failed)?;
        let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
        let stay = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let opened =
            openat2(&top, below, flags, Mode::empty(), stay).map_err(|errno| failed(errno.into()))?;
        Self::of(opened.into(), &path, access)
    }

    fn of(file: File, path: &Path, access: WorkspaceAccess) -> Result<Self, WorkspaceError> {
        let failed = |source| WorkspaceError::Open { path: path.to_owned(), source };
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

    /// Copies it for a machine, which cannot be shown it. On a thread of its own: nobody else waits for a disk.
    /// Why not is said with the name of the file.
    pub(crate) async fn copy(&self, caps: CopyCaps) -> Result<OwnedFd, String> {
        let directory = self.directory.try_clone().map_err(|error| error.to_string())?;
        let copied = tokio::task::spawn_blocking(move || copy_workspace(directory.as_fd(), &caps)).await;
        let copied = copied.unwrap_or_else(|gone| Err(io::Error::other(gone)));
        copied.map_err(|error| {
            format!(
                "it cannot copy the workspace {}: {error} (files.disk, files.inodes and files.file_size say how much is \
                 taken; a daemon reads no directory of its callers: use `blastbox run`, or `blastbox cp`)",
                self.path.display()
            )
        })
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

    #[test]
    fn beneath_a_root_no_link_and_no_dots_lead_out_of_it() {
        let root = std::env::temp_dir().join(format!("blastbox-roots-{}", std::process::id()));
        std::fs::create_dir_all(root.join("project/deep")).unwrap();
        std::os::unix::fs::symlink("/etc", root.join("away")).unwrap();
        std::os::unix::fs::symlink("project", root.join("near")).unwrap();
        let beneath = |below: &str| {
            WorkspaceDir::open_beneath(&root, Path::new(below), WorkspaceAccess::ReadOnly).map(drop)
        };
        for within in ["", "project", "project/deep"] {
            assert!(beneath(within).is_ok(), "{within}");
        }
        for without in ["away", "away/ssl", "near", "..", "project/../../etc", "/etc", "missing"] {
            assert!(matches!(beneath(without), Err(WorkspaceError::Open { .. })), "{without}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
