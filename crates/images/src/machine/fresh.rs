//! Files that appear whole or not at all, however many make the same one at the same time.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};

use crate::store::word;

/// What begins the name of a file that is not whole yet.
const NEW: &str = ".new-";
/// A file that is younger may belong to a maker that has not come to lock it.
const GRACE: Duration = Duration::from_secs(60);

/// Makes a file and gives it its name when all of it is written.
///
/// Each maker has a file of its own, under a name that nobody else has: one shared by two would be cut short by the
/// second while the first is about to publish it.
pub(super) fn file(folder: &Path, name: &str, fill: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    // The user of a box reads it, through a view that is read-only; the store itself lets nobody in.
    file_for(folder, name, 0o644, fill)
}

/// The same, with these permissions.
pub(super) fn file_for(
    folder: &Path,
    name: &str,
    mode: u32,
    fill: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    let new = folder.join(format!("{NEW}{}-{name}", word()?));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(open(&new, flags, Mode::from_raw_mode(0o600))?);
    let made = flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(io::Error::from)
        .and_then(|()| fill(&file))
        .and_then(|()| file.set_permissions(fs::Permissions::from_mode(mode)))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, folder.join(name)));
    if made.is_err() {
        fs::remove_file(&new).ok();
    }
    made
}

/// Takes away what makers left behind that were killed: files that are not whole, not new, and that nobody holds.
/// Best effort: they only take room.
pub(super) fn sweep(folder: &Path) {
    sweep_after(folder, GRACE);
}

/// The same, however new they are: where nobody else makes any, and this process has not begun to.
pub(super) fn sweep_all(folder: &Path) {
    sweep_after(folder, Duration::ZERO);
}

fn sweep_after(folder: &Path, grace: Duration) {
    let Ok(list) = fs::read_dir(folder) else { return };
    for entry in list.flatten() {
        let ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(NEW));
        if ours && is_left(&entry.path(), grace) {
            fs::remove_file(entry.path()).ok();
        }
    }
}

fn is_left(path: &Path, grace: Duration) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = open(path, flags, Mode::empty()).map(File::from) else { return false };
    let old =
        |found: fs::Metadata| found.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= grace));
    file.metadata().is_ok_and(old) && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
}
