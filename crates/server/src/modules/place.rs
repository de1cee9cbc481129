//! Modules of tenants on disk. Only this daemon writes there, one tenant's turn at a time.
//!
//! ```text
//! PLACE/TENANT/NAME/FORM.DIGEST.wasm   what was brought
//! PLACE/TENANT/NAME/KEY/               its machine code: one directory for each way that it is compiled
//! PLACE/TENANT/NAME/.making-CHANCE/    such a one, while the compiler makes it: nobody's after a start
//! PLACE/TENANT/.new-NUMBER/            one on its way in or out: nobody's after a start
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use blastbox_engine::keeper::Tenant;
use blastbox_images::Form;
use blastbox_policy::GuestName;
use blastbox_wire::receipt::rfc3339;
use rustix::fs::{CWD, RenameFlags, renameat_with, statvfs};
use rustix::io::Errno;

use super::ModuleCard;

/// What is brought, until it is known what it is.
pub(super) const BROUGHT: &str = "brought.wasm";
/// How a directory is called that is on its way.
const NEW: &str = ".new-";
/// How the compiler calls what it has half made.
const MAKING: &str = ".making-";
/// How deep directories are looked at.
const DEEPEST: u32 = 3;
/// Digits of the name of a directory with machine code.
const KEY: usize = 64;
/// What stays free on the disk, whatever tenants bring: the ledger lies there, too, and without it nothing begins.
const STAYS_FREE: u64 = 512 << 20;

/// The directory of all of them.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    next: AtomicU64,
    /// Bytes that those may still write who are at it.
    promised: Mutex<u64>,
}

/// Room on the disk that nobody else is given while this is held.
#[derive(Debug)]
pub(super) struct Promise<'a> {
    place: &'a Place,
    bytes: u64,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let mut promised = self.place.promised();
        *promised = promised.saturating_sub(self.bytes);
    }
}

/// What a module's file is called once it is compiled: what is known of it stands in its name.
pub(super) fn brought_as(form: Form, digest: &str) -> String {
    format!("{}.{digest}.wasm", word(form))
}

const fn word(form: Form) -> &'static str {
    match form {
        Form::Module => "module",
        Form::Component => "component",
    }
}

fn read_name(name: &str) -> Option<(Form, &str)> {
    let (form, digest) = name.strip_suffix(".wasm")?.split_once('.')?;
    let form = [Form::Module, Form::Component].into_iter().find(|known| word(*known) == form)?;
    Some((form, digest))
}

/// Whether a module's file was brought with this content.
pub(super) fn is_of(file: &Path, digest: &str) -> bool {
    name_of(file).and_then(read_name).is_some_and(|(_, known)| known == digest)
}

impl Place {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        private(path)?;
        for tenant in entries(path)? {
            for home in entries(&tenant)? {
                if is_called(&home, NEW) {
                    fs::remove_dir_all(home)?;
                    continue;
                }
                // Of a compiler that was killed. Whoever compiles this module again would clear it away, and maybe nobody does.
                for left in entries(&home)?.iter().filter(|entry| is_called(entry, MAKING)) {
                    fs::remove_dir_all(left)?;
                }
            }
        }
        Ok(Self { path: path.to_owned(), next: AtomicU64::new(0), promised: Mutex::default() })
    }

    fn promised(&self) -> MutexGuard<'_, u64> {
        // Nobody panics while holding it.
        self.promised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses so many bytes more where what must stay free would not.
    pub(super) fn has_free(&self, bytes: u64) -> io::Result<()> {
        self.reserve(bytes).map(drop)
    }

    /// The same, and keeps them for whoever asks.
    pub(super) fn reserve(&self, bytes: u64) -> io::Result<Promise<'_>> {
        let mut promised = self.promised();
        let disk = statvfs(&self.path)?;
        let needed = STAYS_FREE.saturating_add(*promised).saturating_add(bytes);
        if disk.f_bavail.saturating_mul(disk.f_frsize) < needed {
            return Err(io::ErrorKind::StorageFull.into());
        }
        *promised = promised.saturating_add(bytes);
        Ok(Promise { place: self, bytes })
    }

    fn of(&self, tenant: &Tenant) -> PathBuf {
        self.path.join(tenant.as_str())
    }

    /// Where a module lies.
    pub(super) fn home(&self, tenant: &Tenant, name: &GuestName) -> PathBuf {
        self.of(tenant).join(name.as_str())
    }

    /// A directory for one that comes.
    pub(super) fn fresh(&self, tenant: &Tenant) -> io::Result<PathBuf> {
        private(&self.of(tenant))?;
        let new = self.another(tenant);
        DirBuilder::new().mode(0o700).create(&new)?;
        Ok(new)
    }

    fn another(&self, tenant: &Tenant) -> PathBuf {
        self.of(tenant).join(format!("{NEW}{}", self.next.fetch_add(1, Ordering::Relaxed)))
    }

    /// Gives one that came its place. Says where that lies which was there before: in one step, so that whoever is killed leaves one of
    /// the two.
    pub(super) fn put(&self, tenant: &Tenant, name: &GuestName, home: &Path) -> io::Result<Option<PathBuf>> {
        let place = self.home(tenant, name);
        match renameat_with(CWD, home, CWD, &place, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(Some(home.to_owned())),
            Err(Errno::NOENT) => fs::rename(home, place).map(|()| None),
            // A file system that cannot: whoever is killed between the two steps leaves none of this name.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let before = self.remove(tenant, name)?;
                let put = fs::rename(home, &place);
                if let (Err(_), Some(before)) = (&put, &before) {
                    fs::rename(before, &place).ok();
                }
                put.map(|()| before)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes one away, at once for everybody who looks for it. Says where its files lie now; `None`: there is none of this name.
    pub(super) fn remove(&self, tenant: &Tenant, name: &GuestName) -> io::Result<Option<PathBuf>> {
        let gone = self.another(tenant);
        match fs::rename(self.home(tenant, name), &gone) {
            Ok(()) => Ok(Some(gone)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What was brought under this name.
    pub(super) fn find(&self, tenant: &Tenant, name: &GuestName) -> io::Result<Option<PathBuf>> {
        let files = entries(&self.home(tenant, name))?;
        Ok(files.into_iter().find(|file| name_of(file).and_then(read_name).is_some()))
    }

    /// Machine code of a module that is of no use to this daemon: but for the `made`, and such as is compiled the other way, which this file
    /// says.
    pub(super) fn outdated(&self, home: &Path, made: Option<&Path>, other: &str) -> io::Result<Vec<PathBuf>> {
        let is_code = |path: &Path| name_of(path).is_some_and(|name| name.len() == KEY) && path.is_dir();
        let mut codes = entries(home)?;
        codes.retain(|path| is_code(path) && made != Some(path) && !path.join(other).is_file());
        Ok(codes)
    }

    /// Those of a tenant, by name.
    pub(super) fn list(&self, tenant: &Tenant) -> io::Result<Vec<ModuleCard>> {
        let mut cards = Vec::new();
        for home in entries(&self.of(tenant))? {
            let Some(name) = name_of(&home).and_then(|name| name.parse::<GuestName>().ok()) else { continue };
            // One that is taken away meanwhile is not there.
            let Some(file) = self.find(tenant, &name)? else { continue };
            let (Some((form, digest)), Ok(about)) = (name_of(&file).and_then(read_name), fs::metadata(&file))
            else {
                continue;
            };
            let added = about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            let (digest, bytes) = (format!("sha256:{digest}"), about.len());
            let added_at = rfc3339(added.unwrap_or_default());
            cards.push(ModuleCard { name: name.to_string(), form, digest, bytes, added_at });
        }
        cards.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(cards)
    }

    /// Bytes of all of a tenant's, with their machine code.
    pub(super) fn used(&self, tenant: &Tenant) -> u64 {
        size(&self.of(tenant))
    }

    /// The same of one of them.
    pub(super) fn used_by(&self, tenant: &Tenant, name: &GuestName) -> u64 {
        size(&self.home(tenant, name))
    }
}

/// Bytes of the files beneath.
pub(super) fn size(path: &Path) -> u64 {
    fn beneath(path: &Path, depth: u32) -> u64 {
        let each = |path: &PathBuf| match fs::symlink_metadata(path) {
            Ok(about) if about.is_dir() && depth < DEEPEST => beneath(path, depth.saturating_add(1)),
            Ok(about) => about.len(),
            Err(_) => 0,
        };
        entries(path).unwrap_or_default().iter().map(each).fold(0, u64::saturating_add)
    }
    beneath(path, 0)
}

fn private(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// What lies in a directory; nothing where there is none.
fn entries(path: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(path) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

fn name_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()
}

fn is_called(path: &Path, prefix: &str) -> bool {
    name_of(path).is_some_and(|name| name.starts_with(prefix))
}
