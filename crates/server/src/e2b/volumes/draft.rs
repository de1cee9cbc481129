//! A file on its way into a volume. It lies beside volumes until it is whole, where no box sees it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::room::Hold;
use crate::e2b::apart::Threads;

/// It is gone with this, unless it has arrived.
#[derive(Debug)]
pub(super) struct Draft {
    path: PathBuf,
    /// None: it has arrived, or is gone.
    open: Mutex<Option<Open>>,
    /// Where it is taken away.
    threads: Threads,
}

#[derive(Debug)]
struct Open {
    file: File,
    length: u64,
    /// Dropped last: a file counts until it is gone. Who begins and goes away fast could fill the disk otherwise.
    hold: Hold,
}

impl Draft {
    pub(super) fn begin((file, path): (File, PathBuf), hold: Hold, threads: Threads) -> Self {
        Self { path, open: Mutex::new(Some(Open { file, length: 0, hold })), threads }
    }

    fn open(&self) -> MutexGuard<'_, Option<Open>> {
        // Nobody panics while holding it.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes more. `false`: the volume has no room for it.
    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<bool> {
        let mut open = self.open();
        let open = open.as_mut().ok_or(io::ErrorKind::NotFound)?;
        open.length = open.length.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(open.hold.reach(open.length)? && open.file.write_all(bytes).map(|()| true)?)
    }

    /// Gives it its place in the volume. `None`: there is no room for it any more.
    pub(super) fn arrive<T>(&self, put: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<Option<T>> {
        let mut slot = self.open();
        let open = slot.as_mut().ok_or(io::ErrorKind::NotFound)?;
        if !open.hold.reach(open.length)? {
            return Ok(None);
        }
        let put = open.hold.arrive(|| put(&self.path))?;
        *slot = None;
        Ok(Some(put))
    }

    /// Takes it away now, for whoever waits until its room is free again.
    pub(super) fn discard(&self) {
        if let Some(open) = self.open().take() {
            take_away(&self.path, open);
        }
    }
}

fn take_away(path: &Path, open: Open) {
    // An error: somebody else has removed it, or the next start does.
    fs::remove_file(path).ok();
    drop(open);
}

impl Drop for Draft {
    fn drop(&mut self) {
        let Some(open) = self.open().take() else { return };
        let path = std::mem::take(&mut self.path);
        let go = move || take_away(&path, open);
        let threads = self.threads.clone();
        // A large file takes its time: not on a thread that others wait for.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(async move { threads.run(go).await })),
            Err(_) => go(),
        }
    }
}

#[cfg(test)]
mod tests;
