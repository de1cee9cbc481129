//! Files of a module that was replaced or taken away: they stay until every box has begun that was promised them.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Held by the daemon for as long as a module is there, and by whoever makes a box of it until its worker has loaded it. The files of a
/// module that is gone go with the last of them.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    gone: OnceLock<PathBuf>,
}

impl Lease {
    /// The module is gone, and what is left of it lies here.
    pub(super) fn end(self: Arc<Self>, left: PathBuf) {
        self.gone.set(left).ok();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(left) = self.gone.get() {
            // What cannot be removed now goes with the next start.
            fs::remove_dir_all(left).ok();
        }
    }
}
