//! Where a ledger lies and how it is kept.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// When a record is on the disk, and not only with the kernel. A killed daemon loses nothing either way; this is about
/// power cuts and kernel panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Before [`Ledger::append`] returns.
    EveryRecord,
    /// With the next checkpoint.
    OnCheckpoint,
}

/// A moment on both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Since 1970, as people count.
    pub since_1970: Duration,
    /// Since the machine was started.
    pub since_boot: Duration,
}

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Self {
        let boot = clock_gettime(ClockId::Boottime);
        Self {
            since_1970: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            since_boot: Duration::try_from(boot).unwrap_or_default(),
        }
    }
}

/// Where a ledger lies and how it is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// The directory; made where it is missing.
    pub directory: PathBuf,
    /// The signing key; made with a new ledger. Better not in the directory that auditors get a copy of.
    pub key: PathBuf,
    /// When records are on the disk.
    pub sync: Sync,
    /// Records between two signatures.
    pub checkpoint_every: u32,
    /// Bytes after which the next file is begun.
    pub rotate_at: u64,
    /// The clock.
    pub clock: fn() -> Moment,
}

impl Options {
    /// Signed every 64 records, on the disk with every signature, a new file every 64 MiB.
    #[must_use]
    pub fn new(directory: PathBuf, key: PathBuf) -> Self {
        let sync = Sync::OnCheckpoint;
        Self { directory, key, sync, checkpoint_every: 64, rotate_at: 64 << 20, clock: Moment::now }
    }
}
