//! Volumes and whose they are, on disk.
//!
//! ```text
//! PLACE/.blastbox-volumes   the mark without which no warden takes a directory for a volume
//! PLACE/ID                  what lies in one; its owner is the daemon's user, whom boxes see as theirs
//! PLACE/ID.json             its name, its tenant, its token
//! PLACE/drafts              files on their way in
//! ```
//! A record is written last and removed first: what has none is nobody's, and goes at the next start.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use blastbox_engine::keeper::Tenant;
use blastbox_wire::plan::VOLUMES;
use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};

use super::tree::{Amount, MOST_ENTRIES, Tree};
use crate::e2b::token::Token;

const DRAFTS: &str = "drafts";
const RECORD: &str = "json";
/// What stays free on the disk, for everything else that lies there.
const STAYS_FREE: u64 = 512 << 20;

/// What each tenant may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeLimits {
    /// Volumes of one tenant.
    pub(crate) count: usize,
    /// Bytes of each.
    pub(crate) size: u64,
}

/// A volume, as its tenant knows it.
#[derive(Debug, Clone)]
pub(super) struct Volume {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) tenant: Tenant,
    pub(super) token: Token,
}

#[derive(Serialize, Deserialize)]
struct Record {
    name: String,
    tenant: String,
    token: String,
}

/// Every volume of this daemon.
#[derive(Debug)]
pub(crate) struct Shelf {
    path: PathBuf,
    pub(super) limits: VolumeLimits,
    all: Mutex<BTreeMap<String, Kept>>,
    /// What is nobody's and stays until the next start, and why.
    left: Vec<String>,
    pub(super) watching: Once,
}

#[derive(Debug)]
struct Kept {
    volume: Volume,
    /// Sandboxes in the making that will have it.
    claims: usize,
}

/// Volumes that a sandbox in the making will have: they stay until it has them, or this is dropped.
#[derive(Debug)]
pub(in crate::e2b) struct Claim {
    shelf: Arc<Shelf>,
    ids: Vec<String>,
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut all = self.shelf.all();
        for id in &self.ids {
            if let Some(kept) = all.get_mut(id) {
                kept.claims = kept.claims.saturating_sub(1);
            }
        }
    }
}

/// Why a volume is not made.
#[derive(Debug)]
pub(super) enum Unmade {
    Taken,
    TooMany,
    Disk(io::Error),
}

impl Shelf {
    /// Opens the place, or makes it, and takes away what is nobody's. Looks at the disk, and is for the start.
    pub(crate) fn open(path: &Path, limits: VolumeLimits) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path.join(DRAFTS))?;
        OpenOptions::new().create(true).append(true).mode(0o600).open(path.join(VOLUMES))?;
        let mut all = BTreeMap::new();
        let mut directories = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            match name.strip_suffix(".json") {
                Some(id) => {
                    let volume = read(&entry.path(), id)?;
                    all.insert(id.to_owned(), Kept { volume, claims: 0 });
                }
                None if entry.file_type()?.is_dir() && name != DRAFTS => directories.push(name),
                None => {}
            }
        }
        let (all, left, watching) = (Mutex::new(all), Vec::new(), Once::new());
        let mut shelf = Self { path: path.to_owned(), limits, all, left, watching };
        directories.retain(|id| !shelf.all().contains_key(id));
        let cleared = directories.into_iter().map(|id| (path.join(&id), shelf.clear(&id)));
        let drafts = fs::read_dir(path.join(DRAFTS))?.collect::<io::Result<Vec<_>>>()?;
        let cleared = cleared.chain(drafts.iter().map(|draft| (draft.path(), fs::remove_file(draft.path()))));
        // Nobody's leftovers, which a box may have made hard to remove, keep no daemon from starting for everybody.
        let left = cleared.filter_map(|(path, done)| Some(format!("{}: {}", path.display(), done.err()?)));
        shelf.left = left.collect();
        Ok(shelf)
    }

    /// What is nobody's and could not be taken away, each with the reason.
    pub(crate) fn left(&self) -> &[String] {
        &self.left
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Kept>> {
        // Nobody panics while holding it.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of a tenant's, by its id; whoever asks with its token has no tenant yet.
    pub(super) fn find(&self, tenant: Option<&Tenant>, id: &str) -> Option<Volume> {
        let all = self.all();
        let volume = all.get(id).map(|kept| kept.volume.clone());
        volume.filter(|volume| tenant.is_none_or(|tenant| volume.tenant == *tenant))
    }

    /// A tenant's own, by name.
    pub(super) fn of(&self, tenant: &Tenant) -> Vec<Volume> {
        let mut own: Vec<Volume> = {
            let all = self.all();
            let volumes = all.values().map(|kept| &kept.volume);
            volumes.filter(|volume| volume.tenant == *tenant).cloned().collect()
        };
        own.sort_by(|one, other| one.name.cmp(&other.name));
        own
    }

    /// Tenants that have any.
    pub(super) fn tenants(&self) -> Vec<Tenant> {
        let mut tenants: Vec<Tenant> = self.all().values().map(|kept| kept.volume.tenant.clone()).collect();
        tenants.sort();
        tenants.dedup();
        tenants
    }

    /// Makes one. Looks at the disk.
    pub(super) fn make(&self, tenant: &Tenant, name: &str) -> Result<Volume, Unmade> {
        let random = || Token::new().ok_or_else(|| Unmade::Disk(io::ErrorKind::Other.into()));
        let token = random()?;
        let id: String = random()?
            .show_to_owner()
            .bytes()
            .filter(u8::is_ascii_alphanumeric)
            .take(20)
            .map(char::from)
            .collect();
        let id = format!("vol{}", id.to_ascii_lowercase());
        let volume = Volume { id: id.clone(), name: name.to_owned(), tenant: tenant.clone(), token };
        // Held while the disk is asked: two of one name must not both find it free.
        let mut all = self.all();
        let own: Vec<&Volume> =
            all.values().map(|kept| &kept.volume).filter(|volume| volume.tenant == *tenant).collect();
        if own.iter().any(|other| other.name == name) {
            return Err(Unmade::Taken);
        }
        if own.len() >= self.limits.count {
            return Err(Unmade::TooMany);
        }
        let made =
            DirBuilder::new().mode(0o755).create(self.path.join(&id)).and_then(|()| self.write(&volume));
        made.map_err(Unmade::Disk)?;
        all.insert(id, Kept { volume: volume.clone(), claims: 0 });
        Ok(volume)
    }

    fn write(&self, volume: &Volume) -> io::Result<()> {
        let record = Record {
            name: volume.name.clone(),
            tenant: volume.tenant.to_string(),
            token: volume.token.show_to_owner().to_owned(),
        };
        let text = serde_json::to_vec(&record)?;
        let (draft, at) = (self.path.join(DRAFTS).join(&volume.id), self.record(&volume.id));
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(draft, at)
    }

    fn record(&self, id: &str) -> PathBuf {
        self.path.join(format!("{id}.{RECORD}"))
    }

    /// Claims a tenant's volumes by their names; an error is the name that there is none of.
    pub(super) fn claim(
        self: &Arc<Self>,
        tenant: &Tenant,
        names: &[&str],
    ) -> Result<(Claim, Vec<Volume>), String> {
        let mut all = self.all();
        let mut claimed = Vec::new();
        for name in names {
            let own = |kept: &&Kept| kept.volume.tenant == *tenant && kept.volume.name == *name;
            let found = all.values().find(own).ok_or_else(|| (*name).to_owned())?;
            claimed.push(found.volume.clone());
        }
        let ids: Vec<String> = claimed.iter().map(|volume| volume.id.clone()).collect();
        for id in &ids {
            if let Some(kept) = all.get_mut(id) {
                kept.claims += 1;
            }
        }
        drop(all);
        Ok((Claim { shelf: Arc::clone(self), ids }, claimed))
    }

    /// Takes a volume out, unless somebody has it: what is in it stays until [`Self::clear`].
    pub(super) fn take_out(&self, id: &str, is_used: impl FnOnce() -> bool) -> io::Result<bool> {
        let kept = {
            let mut all = self.all();
            match all.get(id) {
                None => return Ok(true),
                Some(kept) if kept.claims > 0 => return Ok(false),
                Some(_) => all.remove(id),
            }
        };
        // From here on nobody can claim it; who had before is a sandbox by now.
        let outcome = if is_used() { Ok(false) } else { fs::remove_file(self.record(id)).map(|()| true) };
        if !matches!(outcome, Ok(true)) {
            self.all().extend(kept.map(|kept| (id.to_owned(), kept)));
        }
        outcome
    }

    /// Takes away what is left of a volume that is nobody's any more. Takes its time.
    pub(super) fn clear(&self, id: &str) -> io::Result<()> {
        let path = self.path.join(id);
        Tree::open(&path)?.empty()?;
        fs::remove_dir(path)
    }

    /// What lies in one.
    pub(super) fn tree(&self, id: &str) -> io::Result<Tree> {
        Tree::open(&self.path.join(id))
    }

    /// A file that is on its way into one.
    pub(super) fn draft(&self) -> io::Result<(File, PathBuf)> {
        let random = Token::new().ok_or(io::ErrorKind::Other)?;
        let path = self.path.join(DRAFTS).join(random.show_to_owner());
        let file = OpenOptions::new().create_new(true).write(true).mode(0o644).open(&path)?;
        Ok((file, path))
    }

    pub(super) fn most(&self) -> Amount {
        Amount { bytes: self.limits.size, entries: MOST_ENTRIES }
    }

    /// How much lies in one, and no further than there may be.
    pub(super) fn measure(&self, id: &str) -> io::Result<Amount> {
        self.tree(id)?.measure(self.most())
    }

    /// Whether the disk has room left for everything else.
    pub(super) fn disk_has_room(&self) -> bool {
        statvfs(&self.path).is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) > STAYS_FREE)
    }
}

fn read(path: &Path, id: &str) -> io::Result<Volume> {
    let bad = |error: &dyn std::fmt::Display| {
        io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))
    };
    let Record { name, tenant, token } =
        serde_json::from_slice(&fs::read(path)?).map_err(|error| bad(&error))?;
    let tenant = tenant.parse().map_err(|error| bad(&error))?;
    Ok(Volume { id: id.to_owned(), name, tenant, token: Token::kept(token) })
}

#[cfg(test)]
mod tests;
