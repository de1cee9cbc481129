//! A directory that belongs to one test and goes with it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory on the host that everybody may look into and that vanishes with its owner.
#[derive(Debug)]
pub struct Place {
    path: PathBuf,
}

/// A number that no other test of this process has.
pub(crate) fn number() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Place {
    /// A new empty directory in the host's directory for such things.
    pub fn new() -> Self {
        let name = format!("blastbox-tests-{}-{}", std::process::id(), number());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("make a directory for the test");
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&path, open).expect("open the test's directory");
        Self { path }
    }

    /// Gives it to a user, where it can be given.
    pub(crate) fn give(self, uid: Option<u32>) -> Self {
        if uid.is_some() {
            chown(&self.path, uid, uid).expect("give the test's directory away");
        }
        self
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Something in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The courtesy; what is left after a crash lies in the host's directory for such things.
        fs::remove_dir_all(&self.path).ok();
    }
}
