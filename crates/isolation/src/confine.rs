//! The daemon's own walls, put on by the thread that starts all others: what it does not need, it cannot do.
//!
//! Must not: be called twice, or after other threads are there: they would stay outside.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use blastbox_sys::identity::{self, Keep};
use blastbox_sys::landlock::{self, Access, Grant};
use blastbox_sys::seccomp::Filter;
use rustix::fs::{Mode, OFlags, open};

use crate::outside;

/// Where a daemon works.
#[derive(Debug, Default)]
pub struct Workplace {
    /// Directories that it keeps things in.
    pub kept: Vec<PathBuf>,
    /// Files and directories that it reads.
    pub read: Vec<PathBuf>,
}

/// Why the walls are not there. Whoever asked for them must not go on.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// A directory that the daemon needs.
    #[error("cannot open {path} to confine the daemon to it")]
    Open {
        /// Which one.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A wall that this kernel should have.
    #[error("cannot confine the daemon: {what}")]
    Wall {
        /// Which one.
        what: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// What holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confined {
    /// The version of Landlock; `None`: this kernel has none, and every file that the user may open can be opened.
    pub landlock: Option<u32>,
}

/// Confines this thread, and every thread and process that it starts from now on.
pub fn confine(workplace: &Workplace) -> Result<Confined, ConfineError> {
    let wall = |what| move |source| ConfineError::Wall { what, source };
    outside::stay().map_err(wall("the thread that starts programs"))?;
    identity::hide().map_err(wall("memory that nobody else reads"))?;
    let mut held: Vec<(OwnedFd, Access)> = Vec::new();
    // Names everywhere, since a caller at the socket may name any directory; content nowhere else than below.
    held.push((hold(Path::new("/"))?, Access::List));
    for path in &workplace.kept {
        held.push((hold(path)?, Access::ReadWrite));
    }
    for path in &workplace.read {
        match hold(path) {
            Ok(fd) => held.push((fd, Access::ReadOnly)),
            // What is not there cannot be read.
            Err(ConfineError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    if rustix::process::geteuid().is_root() {
        identity::reduce_capabilities(Keep::ForDaemon).map_err(wall("capabilities"))?;
    }
    identity::no_new_privileges().map_err(wall("no new privileges"))?;
    let grants: Vec<Grant<'_>> =
        held.iter().map(|(fd, access)| Grant { dir: fd.as_fd(), access: *access }).collect();
    let abi = landlock::restrict_files(&grants).map_err(wall("Landlock"))?;
    Filter::for_daemon().install().map_err(wall("the filter of system calls"))?;
    Ok(Confined { landlock: (abi > 0).then_some(abi) })
}

fn hold(path: &Path) -> Result<OwnedFd, ConfineError> {
    open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| ConfineError::Open { path: path.to_owned(), source: errno.into() })
}
