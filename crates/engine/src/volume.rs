//! A directory of the host that a box writes to, and others after it.
//!
//! Opened by whoever keeps it, beneath a directory of its own; what the warden mounts is the descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_wire::plan::GuestPath;

/// An opened directory, and where the box sees it: a name in [`VOLUMES_AT`](blastbox_wire::plan::VOLUMES_AT).
#[derive(Debug)]
pub struct VolumeDir {
    at: GuestPath,
    directory: OwnedFd,
}

impl VolumeDir {
    /// This directory, there. Beside it lies [`VOLUMES`](blastbox_wire::plan::VOLUMES), or no warden takes it.
    #[must_use]
    pub fn new(at: GuestPath, directory: OwnedFd) -> Self {
        Self { at, directory }
    }

    pub(crate) fn places(volumes: &[Self]) -> Vec<GuestPath> {
        volumes.iter().map(|volume| volume.at.clone()).collect()
    }
}

impl AsFd for VolumeDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}
