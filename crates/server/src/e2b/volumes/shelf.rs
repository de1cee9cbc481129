//! Volumes and whose they are, on disk.
//!
//! ```text
//! PLACE/.blastbox-volumes   the mark without which no warden takes a directory for a volume
//! PLACE/ID                  what lies in one; its owner is the daemon's user, whom boxes see as theirs
//! PLACE/ID.json             its name, its tenant, its token
//! PLACE/drafts              files on their way in
//! ```
//! A record is written last and removed first: what has none is nobody's, and goes at the next start.

mod claims;
mod record;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_engine::keeper::Tenant;
use blastbox_wire::plan::VOLUMES;
use rustix::fs::statvfs;

pub(in crate::e2b) use self::claims::Claim;
pub(super) use self::claims::Parting;
use self::record::Damaged;
use super::room::Room;
use super::tree::{Amount, MOST_ENTRIES, Tree};
use crate::e2b::token::Token;
use crate::e2b::turns::Turns;

const DRAFTS: &str = "drafts";
const RECORD: &str = "json";
/// What is to stay free on the disk, for everything else that lies there.
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

/// Every volume of this daemon.
#[derive(Debug)]
pub(crate) struct Shelf {
    path: PathBuf,
    pub(super) limits: VolumeLimits,
    /// Never held while the disk is asked: threads of the runtime look into it.
    all: Mutex<BTreeMap<String, Kept>>,
    writing: Turns,
    /// Those that nobody can use while their records are what they are.
    damaged: BTreeMap<String, Damaged>,
    /// What is nobody's and stays until the next start, and why.
    left: Vec<String>,
    /// Whether it is looked how much lies in them.
    pub(super) watched: Mutex<bool>,
}

#[derive(Debug)]
struct Kept {
    volume: Volume,
    room: Arc<Room>,
    /// Sandboxes in the making that will have it.
    claims: usize,
    stay: Stay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stay {
    Stays,
    /// Somebody is about to delete it: no new sandbox gets it, and its name is still taken.
    Leaves,
}

/// Why a volume is not made.
#[derive(Debug)]
pub(super) enum Unmade {
    Taken,
    /// By one whose record cannot be read.
    Damaged,
    TooMany,
    Disk(io::Error),
}

impl Shelf {
    /// Opens the place, or makes it, and takes away what is nobody's. Looks at the disk, and is for the start.
    pub(crate) fn open(path: &Path, limits: VolumeLimits) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path.join(DRAFTS))?;
        OpenOptions::new().create(true).append(true).mode(0o600).open(path.join(VOLUMES))?;
        let (mut volumes, mut damaged, mut directories) = (Vec::new(), BTreeMap::new(), Vec::new());
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            match name.strip_suffix(".json") {
                Some(id) => match record::read(&entry.path(), id) {
                    Ok(volume) => volumes.push(volume),
                    // One volume's, and no reason to start for nobody.
                    Err(why) => drop(damaged.insert(id.to_owned(), why)),
                },
                None if entry.file_type()?.is_dir() && name != DRAFTS => directories.push(name),
                None => {}
            }
        }
        directories.retain(|id| !damaged.contains_key(id));
        let (all, writing, left, watched) =
            (Mutex::default(), Turns::default(), Vec::new(), Mutex::default());
        let mut shelf = Self { path: path.to_owned(), limits, all, writing, damaged, left, watched };
        volumes.into_iter().for_each(|volume| shelf.keep(volume));
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

    /// Records that cannot be read, each with the reason. What belongs to them is kept.
    pub(crate) fn damaged(&self) -> Vec<String> {
        let all = self.damaged.iter();
        all.map(|(id, why)| format!("{}: {why}", self.record(id).display())).collect()
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
        // Two of one name must not both find it free.
        self.writing.alone(tenant, || {
            self.is_free(&volume)?;
            let made = DirBuilder::new().mode(0o755).create(self.path.join(&id));
            let draft = self.path.join(DRAFTS).join(&id);
            let made = made.and_then(|()| record::write(&volume, &draft, &self.record(&id)));
            made.map_err(Unmade::Disk)?;
            self.keep(volume.clone());
            Ok(volume)
        })
    }

    /// Whether its tenant may have another one, of this name.
    fn is_free(&self, new: &Volume) -> Result<(), Unmade> {
        let own = self.of(&new.tenant);
        if own.iter().any(|other| other.name == new.name) {
            return Err(Unmade::Taken);
        }
        let mut damaged = self.damaged.values();
        let taken = damaged.any(|other| other.may_belong_to(&new.tenant) && other.is_called(&new.name));
        // Its record must not be written over, whatever chance has made of an id.
        if taken || self.damaged.contains_key(&new.id) {
            return Err(Unmade::Damaged);
        }
        let damaged = self.damaged.values().filter(|other| other.belongs_to(&new.tenant)).count();
        if own.len() + damaged >= self.limits.count { Err(Unmade::TooMany) } else { Ok(()) }
    }

    fn keep(&self, volume: Volume) {
        let room = Room::of(self.path.join(&volume.id), self.most());
        self.all().insert(volume.id.clone(), Kept { volume, room, claims: 0, stay: Stay::Stays });
    }

    fn record(&self, id: &str) -> PathBuf {
        self.path.join(format!("{id}.{RECORD}"))
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

    /// Room in one for what comes. `None`: it was deleted meanwhile.
    pub(super) fn room(&self, id: &str) -> Option<Arc<Room>> {
        self.all().get(id).map(|kept| Arc::clone(&kept.room))
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

#[cfg(test)]
mod tests;
