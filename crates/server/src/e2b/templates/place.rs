//! Files that templates are made of, in a private directory: what was uploaded, and homes that builds have made.
//!
//! ```text
//! PLACE/uploads/TENANT/HASH   an archive, as a client sent it
//! PLACE/homes/TENANT/HASH     an archive, as an agent packed it
//! ```
//! Nothing of an archive is ever unpacked on the host: agents do that, in boxes. What a tenant writes is counted before it is
//! written, what is still being written among it.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use blastbox_engine::keeper::Tenant;
use blastbox_wire::event::Hash;

use super::{name, trees};

/// Bytes that one tenant's archives may have together, in whole blocks of a disk, and how many there may be.
const MOST_HELD: u64 = 4 << 30;
const MOST_FILES: usize = 1_000;
pub(super) const BLOCK: u64 = 4_096;
pub(super) const MOST_UPLOAD: u64 = 1 << 30;
/// What stays free on the disk, for everything else that lies there.
const STAYS_FREE: u64 = 512 << 20;
/// Uploads are only there to be used again. Those that no build can still be waiting for go where there is no room, and all go
/// after a day.
const USED_WITHIN: Duration = Duration::from_secs(2 * 3_600);
const KEPT_FOR: Duration = Duration::from_secs(24 * 3_600);
/// So much is written at once.
const GULP: usize = 256 * 1024;
pub(super) const DRAFT: &str = ".draft-";
/// Archives, and of each tree how much it takes.
const ROOMS: [&str; 3] = ["uploads", "homes", "trees"];

#[derive(Debug)]
pub(super) struct Place(pub(super) Arc<Counted>);

/// The directory, and what each tenant has in it.
#[derive(Debug)]
pub(super) struct Counted {
    path: PathBuf,
    held: Mutex<HashMap<String, Held>>,
}

/// Bytes and files of one tenant.
#[derive(Debug, Default)]
struct Held {
    /// Those that have their names; none: they changed, and are to be counted.
    kept: Option<(u64, usize)>,
    drafts: (u64, usize),
}

/// A file in the making; gone with this, unless it is kept.
#[derive(Debug)]
pub(super) struct Draft {
    file: File,
    path: PathBuf,
    kept: bool,
    counted: Arc<Counted>,
    tenant: String,
    length: u64,
    waiting: Vec<u8>,
}

impl Drop for Draft {
    fn drop(&mut self) {
        let (counted, tenant, length) =
            (Arc::clone(&self.counted), std::mem::take(&mut self.tenant), blocks(self.length));
        if self.kept {
            return counted.release(&tenant, length);
        }
        let path = std::mem::take(&mut self.path);
        // It counts until it is gone: who asks and goes away fast could fill the disk otherwise.
        let unlink = move || {
            fs::remove_file(path).ok();
            counted.release(&tenant, length);
        };
        // A large file takes its time: not on a thread that others wait for.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(unlink)),
            Err(_) => unlink(),
        }
    }
}

impl Draft {
    /// Takes more, where there is room for it.
    pub(super) async fn take(mut self, bytes: &[u8]) -> io::Result<Self> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() < GULP {
            return Ok(self);
        }
        on_its_own_thread(move || self.write().map(|()| self)).await
    }

    /// Gives it its name, once all of it is on the disk.
    pub(super) async fn keep(self, at: PathBuf) -> io::Result<()> {
        self.settle().await?.name(&at)
    }

    /// Waits until all of it is on the disk, which may take long.
    pub(super) async fn settle(mut self) -> io::Result<Self> {
        on_its_own_thread(move || {
            self.write()?;
            self.file.sync_all()?;
            Ok(self)
        })
        .await
    }

    /// Gives what is settled its name, which takes a moment.
    pub(super) fn name(mut self, at: &Path) -> io::Result<()> {
        fs::rename(&self.path, at)?;
        self.kept = true;
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.waiting);
        let longer = self.length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let more = blocks(longer).saturating_sub(blocks(self.length));
        self.counted.reserve(&self.tenant, more, 0)?;
        self.length = longer;
        self.file.write_all(&bytes)
    }
}

/// A disk may take its time, and others wait for this thread.
pub(super) async fn on_its_own_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}

pub(super) fn blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).saturating_mul(BLOCK)
}

impl Counted {
    fn held(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        // Nobody panics while holding it.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn room(&self, room: &str, tenant: &str) -> io::Result<PathBuf> {
        let path = self.path.join(room).join(tenant);
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(path)
    }

    /// Counts what will be written, or refuses it.
    pub(super) fn reserve(&self, tenant: &str, bytes: u64, files: usize) -> io::Result<()> {
        let mut all = self.held();
        let held = all.entry(tenant.to_owned()).or_default();
        let kept = self.kept(held, tenant)?;
        let (bytes_held, files_held) = (kept.0.saturating_add(held.drafts.0), kept.1 + held.drafts.1);
        if bytes_held.saturating_add(bytes) > MOST_HELD || files_held + files > MOST_FILES {
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        let disk = rustix::fs::statvfs(&self.path)?;
        if disk.f_bavail.saturating_mul(disk.f_frsize) < STAYS_FREE.saturating_add(bytes) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        held.drafts = (held.drafts.0.saturating_add(bytes), held.drafts.1 + files);
        Ok(())
    }

    /// Whether the largest upload has no room.
    fn is_tight(&self, tenant: &str) -> io::Result<bool> {
        let mut all = self.held();
        let held = all.entry(tenant.to_owned()).or_default();
        let kept = self.kept(held, tenant)?;
        let bytes = kept.0.saturating_add(held.drafts.0).saturating_add(MOST_UPLOAD);
        Ok(bytes > MOST_HELD || kept.1 + held.drafts.1 >= MOST_FILES)
    }

    /// A draft is gone, or has its name: then it is counted where it lies.
    pub(super) fn release(&self, tenant: &str, bytes: u64) {
        if let Some(held) = self.held().get_mut(tenant) {
            held.kept = None;
            held.drafts = (held.drafts.0.saturating_sub(bytes), held.drafts.1.saturating_sub(1));
        }
    }

    fn kept(&self, held: &mut Held, tenant: &str) -> io::Result<(u64, usize)> {
        if let Some(kept) = held.kept {
            return Ok(kept);
        }
        let mut kept = (0_u64, 0);
        for room in ROOMS {
            for file in fs::read_dir(self.room(room, tenant)?)? {
                let file = file?;
                if !is_draft(&file) {
                    let length = match room {
                        "trees" => trees::counted(&file.path()),
                        // One that went away meanwhile holds nothing.
                        _ => file.metadata().map_or(0, |found| found.len()),
                    };
                    kept = (kept.0.saturating_add(blocks(length)), kept.1 + 1);
                }
            }
        }
        held.kept = Some(kept);
        Ok(kept)
    }

    /// What lies there has changed.
    fn count_anew(&self) {
        self.held().values_mut().for_each(|held| held.kept = None);
    }
}

fn is_draft(file: &fs::DirEntry) -> bool {
    file.file_name().to_string_lossy().starts_with(DRAFT)
}

/// What somebody else put there is nobody's, and in nobody's way.
fn is_directory(file: &fs::DirEntry) -> bool {
    file.file_type().is_ok_and(|kind| kind.is_dir())
}

impl Place {
    /// Opens it, and takes away what an earlier daemon left half.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        for room in ROOMS {
            DirBuilder::new().recursive(true).mode(0o700).create(path.join(room))?;
            for tenant in fs::read_dir(path.join(room))?.flatten().filter(is_directory) {
                for file in fs::read_dir(tenant.path())?.flatten().filter(is_draft) {
                    fs::remove_file(file.path())?;
                }
            }
        }
        Ok(Self(Arc::new(Counted { path, held: Mutex::default() })))
    }

    /// Where what has this hash lies, once it was uploaded.
    pub(super) fn upload(&self, tenant: &Tenant, hash: &str) -> io::Result<PathBuf> {
        Ok(self.0.room("uploads", tenant.as_str())?.join(hash))
    }

    /// Whether that is there. A client that hears so does not send it again: it is as good as new.
    pub(super) fn has_upload(&self, tenant: &Tenant, hash: &str) -> io::Result<bool> {
        match OpenOptions::new().append(true).open(self.upload(tenant, hash)?) {
            Ok(file) => file.set_modified(SystemTime::now()).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn home(&self, tenant: &Tenant, digest: &Hash) -> io::Result<PathBuf> {
        Ok(self.0.room("homes", tenant.as_str())?.join(file_name(digest)))
    }

    /// The same, opened: whoever has it open has it, also when nothing means it any more.
    pub(super) fn open_home(&self, tenant: &Tenant, digest: &Hash) -> io::Result<File> {
        File::open(self.home(tenant, digest)?)
    }

    /// A file in the making, for a room that has it later. Refused where the tenant has too much already.
    pub(super) async fn draft(&self, room: &'static str, tenant: &Tenant) -> io::Result<Draft> {
        let (counted, tenant) = (Arc::clone(&self.0), tenant.as_str().to_owned());
        on_its_own_thread(move || {
            if counted.is_tight(&tenant)? {
                forget(&counted.room("uploads", &tenant)?, USED_WITHIN)?;
                counted.count_anew();
            }
            let word = name::new_template().ok_or(io::ErrorKind::Other)?;
            let path = counted.room(room, &tenant)?.join(format!("{DRAFT}{word}"));
            counted.reserve(&tenant, 0, 1)?;
            let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
            let file = opened.inspect_err(|_| counted.release(&tenant, 0))?;
            Ok(Draft { file, path, kept: false, counted, tenant, length: 0, waiting: Vec::new() })
        })
        .await
    }

    /// Whether so much more could be written, and what must stay free would.
    pub(super) fn has_free(&self, bytes: u64) -> io::Result<bool> {
        let disk = rustix::fs::statvfs(&self.0.path)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize) >= STAYS_FREE.saturating_add(bytes))
    }

    /// Whether a tenant has no room for the largest upload. What cannot be counted is told when something is written.
    pub(super) async fn is_tight(&self, tenant: &Tenant) -> bool {
        let (counted, tenant) = (Arc::clone(&self.0), tenant.as_str().to_owned());
        on_its_own_thread(move || counted.is_tight(&tenant)).await.unwrap_or(false)
    }

    /// Takes away homes and counts of trees that nothing means, and uploads that nobody has asked for since yesterday.
    pub(super) fn sweep(&self, needed: &BTreeSet<(String, Hash)>) -> io::Result<()> {
        for room in ["homes", "trees"] {
            for tenant in fs::read_dir(self.0.path.join(room))?.flatten().filter(is_directory) {
                let whose = tenant.file_name().to_string_lossy().into_owned();
                for file in fs::read_dir(tenant.path())?.flatten().filter(|file| !is_draft(file)) {
                    let name = file.file_name().to_string_lossy().into_owned();
                    if !needed.iter().any(|(owner, part)| *owner == whose && file_name(part) == name) {
                        fs::remove_file(file.path())?;
                    }
                }
            }
        }
        for tenant in fs::read_dir(self.0.path.join("uploads"))?.flatten().filter(is_directory) {
            forget(&tenant.path(), KEPT_FOR)?;
        }
        self.0.count_anew();
        Ok(())
    }
}

/// Takes away what is older than this.
fn forget(uploads: &Path, than: Duration) -> io::Result<()> {
    for file in fs::read_dir(uploads)?.flatten().filter(|file| !is_draft(file)) {
        let age = file.metadata().and_then(|found| found.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > than) {
            fs::remove_file(file.path())?;
        }
    }
    Ok(())
}

pub(super) fn file_name(digest: &Hash) -> String {
    let text = digest.to_string();
    text.strip_prefix("sha256:").unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    const PIECE: u64 = 256 * 1024;

    /// A file of that many bytes which takes no room on the disk.
    fn large(path: &Path, bytes: u64) {
        File::create(path).unwrap().set_len(bytes).unwrap();
    }

    #[tokio::test]
    async fn drafts_count_before_they_are_written_and_no_longer_when_they_are_gone() {
        let scratch = Scratch::new("place");
        let place = Place::open(scratch.path().to_owned()).unwrap();
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        large(&place.upload(&ann, "large").unwrap(), MOST_HELD - 3 * PIECE);
        let [one, two] =
            [place.draft("uploads", &ann).await.unwrap(), place.draft("homes", &ann).await.unwrap()];
        let one = one.take(&[1; GULP]).await.unwrap().take(&[1; GULP]).await.unwrap();
        let two = two.take(&[2; GULP]).await.unwrap();
        let full = two.take(&[2; GULP]).await.unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::QuotaExceeded);
        // What was refused counts until its file is gone, on a thread that nobody waits for; others never noticed.
        let left = || fs::read_dir(scratch.path().join("homes/ann")).unwrap().count();
        let settled = async || {
            for _ in 0..1000 {
                if left() == 0 {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        };
        settled().await;
        // The count follows the file at once.
        let mut again = place.draft("homes", &ann).await.unwrap().take(&[2; GULP]).await;
        for _ in 0..100 {
            if again.is_ok() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            again = place.draft("homes", &ann).await.unwrap().take(&[2; GULP]).await;
        }
        let two = again.unwrap();
        drop(place.draft("homes", &bob).await.unwrap().take(&[2; GULP]).await.unwrap());
        one.keep(place.upload(&ann, "kept").unwrap()).await.unwrap();
        assert!(two.take(&[2; GULP]).await.is_err());
        assert_eq!(fs::metadata(place.upload(&ann, "kept").unwrap()).unwrap().len(), 2 * PIECE);
        settled().await;
        assert_eq!(left(), 0);
    }

    #[tokio::test]
    async fn there_is_an_end_to_files_and_each_has_a_block_at_least() {
        let scratch = Scratch::new("place-files");
        let place = Place::open(scratch.path().to_owned()).unwrap();
        let ann: Tenant = "ann".parse().unwrap();
        (1..MOST_FILES).for_each(|number| large(&place.upload(&ann, &number.to_string()).unwrap(), 1));
        let last = place.draft("uploads", &ann).await.unwrap();
        assert_eq!(place.draft("uploads", &ann).await.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(place.0.held()["ann"].kept, Some((999 * BLOCK, 999)));
        drop(last);
        drop(place.draft("uploads", &ann).await.unwrap());
    }

    #[tokio::test]
    async fn old_uploads_make_place_and_go_after_a_day_unless_somebody_asked_for_them() {
        let scratch = Scratch::new("place-old");
        let place = Place::open(scratch.path().to_owned()).unwrap();
        let ann: Tenant = "ann".parse().unwrap();
        let age = |name: &str, age: Duration| {
            let at = place.upload(&ann, name).unwrap();
            large(&at, MOST_HELD / 2);
            File::options().write(true).open(at).unwrap().set_modified(SystemTime::now() - age).unwrap();
        };
        age("old", USED_WITHIN * 2);
        age("new", Duration::ZERO);
        place.draft("uploads", &ann).await.unwrap().take(&[1; GULP]).await.unwrap();
        assert!(!place.has_upload(&ann, "old").unwrap() && place.has_upload(&ann, "new").unwrap());
        age("asked for", KEPT_FOR * 2);
        age("older", KEPT_FOR * 2);
        assert!(place.has_upload(&ann, "asked for").unwrap());
        place.sweep(&BTreeSet::new()).unwrap();
        assert!(place.has_upload(&ann, "asked for").unwrap() && !place.has_upload(&ann, "older").unwrap());
    }
}
