//! Secrets and whose they are, on disk.
//!
//! ```text
//! PLACE/TENANT.json       the secrets of one tenant, for the daemon's user alone
//! PLACE/TENANT.json.new   the same on its way: written whole, then renamed
//! ```
//! Must not: print a value, or what is in a file that cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use blastbox_engine::keeper::Tenant;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::value::Hidden;
use crate::e2b::moment::millis;
use crate::e2b::token::Token;
use crate::e2b::turns::Turns;

const END: &str = ".json";
const DRAFT: &str = ".json.new";
/// How ids begin, and no name does.
pub(super) const PREFIX: &str = "sec_";

/// What each tenant may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretLimits {
    /// Secrets of one tenant.
    pub(crate) count: usize,
}

/// What its tenant has written on a secret.
pub(super) type Metadata = BTreeMap<String, String>;

/// What may be said of a secret.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct About {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) version: u64,
    pub(super) metadata: Metadata,
    /// Milliseconds since 1970.
    pub(super) created: i64,
    pub(super) updated: i64,
}

#[derive(Deserialize)]
struct Kept {
    about: About,
    value: Hidden,
}

#[derive(Serialize)]
struct Written<'a> {
    about: &'a About,
    value: &'a str,
}

/// Why it is not done.
#[derive(Debug)]
pub(super) enum Undone {
    Taken,
    TooMany,
    Unknown,
    /// Nobody knows what its tenant has, so that nothing is written over it.
    Damaged,
    Disk(io::Error),
}

/// Every secret of this daemon.
pub(crate) struct Drawer {
    path: PathBuf,
    pub(super) limits: SecretLimits,
    /// Never held while the disk is written: threads of the runtime look into it. Changed by whoever has its tenant's turn.
    all: Mutex<BTreeMap<Tenant, Vec<Kept>>>,
    writing: Turns,
    /// Tenants whose files cannot be read: nothing of theirs is used, and the files stay as they are.
    damaged: BTreeSet<Tenant>,
    /// What is wrong with files, each with its reason.
    wrong: Vec<String>,
}

impl fmt::Debug for Drawer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drawer").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Drawer {
    /// Opens the place, or makes it. Looks at the disk, and is for the start.
    pub(crate) fn open(path: &Path, limits: SecretLimits) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let (mut all, mut damaged, mut wrong) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
        for entry in fs::read_dir(path)? {
            let (name, path) = entry.map(|entry| (entry.file_name(), entry.path()))?;
            let name = name.to_string_lossy();
            if name.ends_with(DRAFT) {
                // Of a daemon that was killed: values are in it.
                wrong
                    .extend(fs::remove_file(&path).err().map(|error| format!("{}: {error}", path.display())));
            } else if let Some(tenant) = name.strip_suffix(END) {
                let whose = tenant.parse::<Tenant>();
                let kept = whose.as_ref().map_err(|error| bad(&path, error)).and_then(|_| read(&path));
                match (whose, kept) {
                    (Ok(tenant), Ok(kept)) => drop(all.insert(tenant, kept)),
                    // One tenant's, and no reason to start for nobody.
                    (whose, Err(error)) => {
                        damaged.extend(whose.ok());
                        wrong.push(error.to_string());
                    }
                    (Err(_), Ok(_)) => {}
                }
            }
        }
        let (all, writing) = (Mutex::new(all), Turns::default());
        Ok(Self { path: path.to_owned(), limits, all, writing, damaged, wrong })
    }

    /// Files that cannot be read or removed, each with the reason. They are kept.
    pub(crate) fn wrong(&self) -> &[String] {
        &self.wrong
    }

    pub(super) fn is_damaged(&self, tenant: &Tenant) -> bool {
        self.damaged.contains(tenant)
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<Tenant, Vec<Kept>>> {
        // Nobody panics while holding it.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A tenant's own.
    pub(super) fn of(&self, tenant: &Tenant) -> Vec<About> {
        self.all().get(tenant).into_iter().flatten().map(|kept| kept.about.clone()).collect()
    }

    /// One of them, by its id or its name.
    pub(super) fn find(&self, tenant: &Tenant, called: &str) -> Option<About> {
        let all = self.all();
        let own = all.get(tenant)?;
        place(own, called).and_then(|place| own.get(place)).map(|kept| kept.about.clone())
    }

    /// Its value, for the gateway of a box of its tenant.
    pub(super) fn value(&self, tenant: &Tenant, called: &str) -> Option<Hidden> {
        let all = self.all();
        let own = all.get(tenant)?;
        let kept = place(own, called).and_then(|place| own.get(place))?;
        Some(Hidden::new(kept.value.expose().to_owned()))
    }

    /// Keeps a new one. Looks at the disk.
    pub(super) fn make(
        &self,
        tenant: &Tenant,
        name: String,
        value: Hidden,
        metadata: Metadata,
    ) -> Result<About, Undone> {
        let random = Token::new().ok_or_else(|| Undone::Disk(io::ErrorKind::Other.into()))?;
        let letters = random.show_to_owner().bytes().filter(u8::is_ascii_alphanumeric).take(24);
        let id = letters
            .map(char::from)
            .fold(PREFIX.to_owned(), |id, letter| id + letter.encode_utf8(&mut [0; 4]));
        let now = millis(SystemTime::now());
        let about = About { id, name, version: 1, metadata, created: now, updated: now };
        let kept = Kept { about: about.clone(), value };
        // Two of one name must not both find it free.
        self.writing.alone(tenant, || {
            let text = {
                let all = self.all();
                let own = all.get(tenant).map(Vec::as_slice).unwrap_or_default();
                if own.iter().any(|other| other.about.name == about.name) {
                    return Err(Undone::Taken);
                }
                if own.len() >= self.limits.count {
                    return Err(Undone::TooMany);
                }
                text(own.iter().chain([&kept]))
            };
            self.write(tenant, text)?;
            self.all().entry(tenant.clone()).or_default().push(kept);
            Ok(about)
        })
    }

    /// Gives one another value, and other metadata where some is given. Looks at the disk.
    pub(super) fn renew(
        &self,
        tenant: &Tenant,
        called: &str,
        value: Hidden,
        metadata: Option<Metadata>,
    ) -> Result<About, Undone> {
        self.writing.alone(tenant, || {
            let (mut kept, text) = {
                let all = self.all();
                let own = all.get(tenant).ok_or(Undone::Unknown)?;
                let old = place(own, called).and_then(|place| own.get(place)).ok_or(Undone::Unknown)?;
                let mut about = old.about.clone();
                about.version = about.version.saturating_add(1);
                about.updated = millis(SystemTime::now());
                about.metadata = metadata.unwrap_or(about.metadata);
                let kept = Kept { about, value };
                let text =
                    text(own.iter().map(|old| if old.about.id == kept.about.id { &kept } else { old }));
                (kept, text)
            };
            self.write(tenant, text)?;
            let about = kept.about.clone();
            let mut all = self.all();
            let old = all.get_mut(tenant).and_then(|own| own.iter_mut().find(|old| old.about.id == about.id));
            if let Some(old) = old {
                std::mem::swap(old, &mut kept);
            }
            Ok(about)
        })
    }

    /// Forgets one. Looks at the disk.
    pub(super) fn remove(&self, tenant: &Tenant, called: &str) -> Result<(), Undone> {
        self.writing.alone(tenant, || {
            let (id, text) = {
                let all = self.all();
                let own = all.get(tenant).ok_or(Undone::Unknown)?;
                let old = place(own, called).and_then(|place| own.get(place)).ok_or(Undone::Unknown)?;
                let id = old.about.id.clone();
                let text = text(own.iter().filter(|kept| kept.about.id != id));
                (id, text)
            };
            self.write(tenant, text)?;
            if let Some(own) = self.all().get_mut(tenant) {
                own.retain(|kept| kept.about.id != id);
            }
            Ok(())
        })
    }

    /// Either the whole of it is there afterwards or what was there before.
    fn write(&self, tenant: &Tenant, text: io::Result<Text>) -> Result<(), Undone> {
        if self.is_damaged(tenant) {
            return Err(Undone::Damaged);
        }
        text.and_then(|text| self.replace(tenant, &text)).map_err(Undone::Disk)
    }

    fn replace(&self, tenant: &Tenant, text: &Text) -> io::Result<()> {
        let (draft, at) =
            (self.path.join(format!("{tenant}{DRAFT}")), self.path.join(format!("{tenant}{END}")));
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&draft)?;
        let written = file.write_all(text).and_then(|()| file.sync_all());
        if let Err(error) = written.and_then(|()| fs::rename(&draft, at)) {
            // Values are in it. What cannot be removed now is removed before the next one, or at the next start.
            fs::remove_file(draft).ok();
            return Err(error);
        }
        // From here on the new one is there, whatever becomes of the old one when the power fails.
        File::open(&self.path)?.sync_all()
    }
}

/// A file with values in it.
type Text = Zeroizing<Vec<u8>>;

fn text<'a>(all: impl Iterator<Item = &'a Kept>) -> io::Result<Text> {
    let all: Vec<&Kept> = all.collect();
    // Room for all of it from the start: what grows leaves copies of values behind in memory.
    let room: usize = all.iter().map(|kept| kept.room()).sum();
    let mut text = Zeroizing::new(Vec::with_capacity(room + 16));
    let written = all.iter().map(|kept| Written { about: &kept.about, value: kept.value.expose() });
    serde_json::to_writer(&mut *text, &written.collect::<Vec<_>>())?;
    Ok(text)
}

impl Kept {
    /// Bytes that it has at most as text: values are printable, and everything else may be escaped.
    fn room(&self) -> usize {
        let About { id, name, metadata, .. } = &self.about;
        let notes: usize = metadata.iter().map(|(key, value)| key.len() + value.len() + 2).sum();
        512 + 2 * self.value.expose().len() + 6 * (id.len() + name.len() + notes)
    }
}

fn place(own: &[Kept], called: &str) -> Option<usize> {
    let name = called.to_lowercase();
    own.iter().position(|Kept { about, .. }| about.id == called || about.name == name)
}

fn read(path: &Path) -> io::Result<Vec<Kept>> {
    let text = Zeroizing::new(fs::read(path).map_err(|error| bad(path, &error))?);
    // What the parser says may repeat what it read.
    serde_json::from_slice(&text).map_err(|error| {
        bad(
            path,
            &format_args!("it is no list of secrets (line {}, column {})", error.line(), error.column()),
        )
    })
}

fn bad(path: &Path, why: &dyn fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests;
