//! Files that templates are made of, in a private directory: what was uploaded, and homes that builds have made.
//!
//! ```text
//! PLACE/uploads/TENANT/HASH   an archive, as a client sent it
//! PLACE/homes/TENANT/HASH     an archive, as an agent packed it
//! ```
//! Nothing of an archive is ever unpacked on the host: agents do that, in boxes.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use blastbox_engine::keeper::Tenant;
use blastbox_wire::event::Hash;

use super::name;

/// Bytes that one tenant's archives may have together.
const MOST_HELD: u64 = 4 << 30;
const DRAFT: &str = ".draft-";

#[derive(Debug)]
pub(super) struct Place(PathBuf);

/// A file in the making; gone with this, unless it is kept.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) file: File,
    path: PathBuf,
    kept: bool,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.kept {
            fs::remove_file(&self.path).ok();
        }
    }
}

impl Draft {
    /// Gives it its name.
    pub(super) fn keep(mut self, at: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, at)?;
        self.kept = true;
        Ok(())
    }
}

impl Place {
    /// Opens it, and takes away what an earlier daemon left half.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        for room in ["uploads", "homes"] {
            DirBuilder::new().recursive(true).mode(0o700).create(path.join(room))?;
            for tenant in fs::read_dir(path.join(room))?.flatten() {
                for file in fs::read_dir(tenant.path())?.flatten() {
                    if file.file_name().to_string_lossy().starts_with(DRAFT) {
                        fs::remove_file(file.path())?;
                    }
                }
            }
        }
        Ok(Self(path))
    }

    fn room(&self, room: &str, tenant: &str) -> io::Result<PathBuf> {
        let path = self.0.join(room).join(tenant);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }

    /// Where what has this hash lies, once it was uploaded.
    pub(super) fn upload(&self, tenant: &Tenant, hash: &str) -> io::Result<PathBuf> {
        Ok(self.room("uploads", tenant.as_str())?.join(hash))
    }

    pub(super) fn home(&self, tenant: &Tenant, digest: &Hash) -> io::Result<PathBuf> {
        Ok(self.room("homes", tenant.as_str())?.join(file_name(digest)))
    }

    /// A file in the making, for a room that has it later. Refused where the tenant has too much already.
    pub(super) fn draft(&self, room: &str, tenant: &Tenant) -> io::Result<Draft> {
        if self.left(tenant)? == 0 {
            self.forget_uploads(tenant)?;
        }
        if self.left(tenant)? == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let word = name::new_template().ok_or(io::ErrorKind::Other)?;
        let path = self.room(room, tenant.as_str())?.join(format!("{DRAFT}{word}"));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Draft { file, path, kept: false })
    }

    /// Uploads are only there to be used again: those that no build can still be waiting for go where there is no room.
    fn forget_uploads(&self, tenant: &Tenant) -> io::Result<()> {
        for file in fs::read_dir(self.room("uploads", tenant.as_str())?)?.flatten() {
            let age =
                file.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
            if age.is_some_and(|age| age > Duration::from_secs(2 * 3_600)) {
                fs::remove_file(file.path())?;
            }
        }
        Ok(())
    }

    /// Bytes that a tenant may still have.
    pub(super) fn left(&self, tenant: &Tenant) -> io::Result<u64> {
        let mut held = 0_u64;
        for room in ["uploads", "homes"] {
            for file in fs::read_dir(self.room(room, tenant.as_str())?)? {
                // One that went away meanwhile holds nothing.
                held = held.saturating_add(file?.metadata().map_or(0, |found| found.len()));
            }
        }
        Ok(MOST_HELD.saturating_sub(held))
    }

    /// Takes away homes that nothing means.
    pub(super) fn sweep(&self, needed: &std::collections::BTreeSet<(String, Hash)>) -> io::Result<()> {
        for tenant in fs::read_dir(self.0.join("homes"))?.flatten() {
            let whose = tenant.file_name().to_string_lossy().into_owned();
            for file in fs::read_dir(tenant.path())?.flatten() {
                let name = file.file_name().to_string_lossy().into_owned();
                let is_needed = needed.iter().any(|(owner, home)| *owner == whose && file_name(home) == name);
                if !is_needed && !name.starts_with(DRAFT) {
                    fs::remove_file(file.path())?;
                }
            }
        }
        Ok(())
    }
}

fn file_name(digest: &Hash) -> String {
    let text = digest.to_string();
    text.strip_prefix("sha256:").unwrap_or(&text).to_owned()
}
