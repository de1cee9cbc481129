//! Why a kernel or a disk could not be had.

use std::io;
use std::path::PathBuf;

/// What went wrong, or was refused.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A file or directory.
    #[error("cannot {tried} {path}")]
    Place {
        /// What was tried.
        tried: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The file is none.
    #[error("{path} is no kernel for this machine: {why}")]
    NotAKernel {
        /// Which file.
        path: PathBuf,
        /// What it has or lacks.
        why: &'static str,
    },
    /// The kernel cannot run a guest.
    #[error(
        "the kernel {path} has no driver {driver}, which a guest needs for {purpose}, neither built in nor among its modules"
    )]
    NoDriver {
        /// The kernel.
        path: PathBuf,
        /// The driver.
        driver: &'static str,
        /// What for.
        purpose: &'static str,
    },
    /// Nobody said where the modules are.
    #[error(
        "{path} comes without its modules; name them with --modules DIR (such as /lib/modules/RELEASE), or say --built-in if it needs none"
    )]
    NoModules {
        /// The kernel.
        path: PathBuf,
    },
    /// There is none.
    #[error(
        "there is no kernel for virtual machines yet; get one with `blastbox kernel get`, or `blastbox kernel add FILE`"
    )]
    NoKernel,
    /// The program that becomes the guest's first process.
    #[error("there is no blastbox-agent at {path}; install all of blastbox's programs together")]
    NoAgent {
        /// Where it should be.
        path: PathBuf,
    },
}

impl MachineError {
    pub(super) fn place(tried: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Place { tried, path, source }
    }
}
