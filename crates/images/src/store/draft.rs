//! A tree in the making. It becomes an image in one step, or nothing of it stays.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, fchmod, flock, mkdirat, openat, renameat, statat, syncfs,
};
use rustix::io::Errno;

use super::StoreError;
use super::facts::{Facts, ImageConfig, Source};
use super::name::ImageName;
use super::place::{DRAFTS, FACTS, MOST_FACTS, Store, TREES, facts_file, folder, random_word};
use crate::tree::beneath::{list, make_and_hold, remove};
use crate::tree::{Caps, Made, TreeError, TreeWriter, digest};
use crate::{DirectoryImage, ImageError};

/// A tree in the making.
#[derive(Debug)]
pub struct Draft<'a> {
    store: &'a Store,
    name: String,
    /// Its lock says that somebody is still at it.
    held: OwnedFd,
    tree: OwnedFd,
}

/// What became of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What is known of the image.
    pub facts: Facts,
    /// Whether the same tree was there before.
    pub known: bool,
    /// Bytes of the disk that it takes beside what it shares with another tree, counted generously.
    pub own: u64,
}

/// What a file, directory or link takes beside its content: a block, at most.
const BLOCK: u64 = 4_096;

impl Store {
    /// Begins a tree.
    pub fn begin(&self) -> Result<Draft<'_>, StoreError> {
        // Between making and holding it nobody may sweep.
        let _lock = self.lock()?;
        let room = self.room(DRAFTS)?;
        let name = random_word()?;
        mkdirat(&room, name.as_str(), Mode::from_raw_mode(0o700)).map_err(self.failed("begin a tree in"))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |at: &OwnedFd, name: &str| openat(at, name, flags, Mode::empty());
        let held = open(&room, &name).map_err(self.failed("begin a tree in"))?;
        flock(&held, FlockOperation::NonBlockingLockExclusive).map_err(self.failed("begin a tree in"))?;
        let tree = make_and_hold(held.as_fd(), b"tree")
            .and_then(|_| open(&held, "tree"))
            .map_err(self.failed("begin a tree in"))?;
        Ok(Draft { store: self, name, held, tree })
    }
}

impl Draft<'_> {
    /// The hand that fills it.
    pub fn writer(&self, caps: Caps) -> Result<TreeWriter, StoreError> {
        let tree = self.tree.try_clone().map_err(|source| StoreError::Place {
            tried: "begin a tree in",
            path: self.store.path().to_owned(),
            source,
        })?;
        Ok(TreeWriter::new(tree, caps))
    }

    /// The directory that is filled.
    #[must_use]
    pub fn directory(&self) -> &OwnedFd {
        &self.tree
    }

    /// Where it is filled, for a program that needs a path.
    #[must_use]
    pub fn path(&self) -> std::path::PathBuf {
        self.store.path().join(DRAFTS).join(&self.name).join("tree")
    }

    /// Looks at it, gives it its digest and puts it into the store.
    pub fn keep(
        self,
        made: Made,
        source: Source,
        config: ImageConfig,
        name: Option<&ImageName>,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Kept, StoreError> {
        self.complete()?;
        let unreadable = |source| StoreError::Place {
            tried: "read a tree in",
            path: self.store.path().to_owned(),
            source,
        };
        let sum = digest::digest(self.tree.as_fd(), tell).map_err(unreadable)?;
        // After a power failure a name must not stand for files that never reached the disk.
        syncfs(&self.tree).map_err(self.store.failed("write to"))?;
        let made_at = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let facts = Facts {
            digest: sum.digest,
            bytes: sum.bytes,
            entries: sum.entries,
            left_out: made.left_out,
            made_at,
            source,
            config,
        };
        let text = serde_json::to_vec_pretty(&facts).map_err(|error| unreadable(error.into()))?;
        if text.len() > MOST_FACTS {
            return Err(StoreError::NotAnImage { why: "what it says beside its files is longer than 4 MiB" });
        }
        let _lock = self.store.lock()?;
        let trees = self.store.room(TREES)?;
        let place = folder(&sum.digest);
        let known = statat(&trees, place.as_str(), AtFlags::SYMLINK_NOFOLLOW).is_ok();
        if !known {
            // Facts first: a tree without them would be one of which nothing is known. Only once: whoever brings the same
            // files again has no say in what was known of them.
            self.store.write(FACTS, &facts_file(&sum.digest), &text)?;
            renameat(&self.held, "tree", &trees, place.as_str()).map_err(self.store.failed("write to"))?;
            syncfs(&trees).map_err(self.store.failed("write to"))?;
        }
        if let Some(name) = name {
            self.store.name(name, &sum.digest, &text)?;
        }
        let (bytes, entries) =
            (sum.bytes.saturating_sub(made.shared.bytes), sum.entries.saturating_sub(made.shared.files));
        Ok(Kept { facts, known, own: bytes.saturating_add(entries.saturating_mul(BLOCK)) })
    }

    /// What every image needs to be shown: something at its top, and an ordinary file where a box puts its resolver.
    fn complete(&self) -> Result<(), StoreError> {
        fchmod(&self.tree, Mode::from_raw_mode(0o755)).map_err(self.store.failed("write to"))?;
        let top = list(self.tree.as_fd()).map_err(self.store.failed("read a tree in"))?;
        let has = |name: &[u8]| top.iter().any(|known| known == name);
        if has(b"oci-layout") || (has(b"manifest.json") && !has(b"usr") && !has(b"bin")) {
            return Err(StoreError::NotAnImage {
                why: "it holds an OCI layout or a saved image and no root file system; unpack it into a directory \
                      and import that",
            });
        }
        match DirectoryImage::open_stored(&self.path()) {
            Ok(_) => {}
            Err(ImageError::NoSystem { .. }) => {
                return Err(StoreError::NotAnImage {
                    why: "it has nothing at its top that a box could be shown",
                });
            }
            Err(error) => return Err(error.into()),
        }
        self.make_coverable().map_err(|errno| TreeError::write(b"etc/resolv.conf", errno).into())
    }

    /// A box with network covers the image's resolver with its own, which needs an ordinary file to cover.
    fn make_coverable(&self) -> Result<(), Errno> {
        let etc = match statat(&self.tree, "etc", AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                make_and_hold(self.tree.as_fd(), b"etc")?
            }
            Ok(_) => return Ok(()),
            Err(Errno::NOENT) => make_and_hold(self.tree.as_fd(), b"etc")?,
            Err(errno) => return Err(errno),
        };
        for name in ["resolv.conf", "hosts"] {
            let found = statat(&etc, name, AtFlags::SYMLINK_NOFOLLOW);
            if found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile) {
                continue;
            }
            remove(etc.as_fd(), name.as_bytes())?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let file = openat(&etc, name, flags, Mode::from_raw_mode(0o644))?;
            fchmod(&file, Mode::from_raw_mode(0o644))?;
            if name == "hosts" {
                rustix::io::write(&file, b"127.0.0.1 localhost\n::1 localhost\n")?;
            }
        }
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // A courtesy: whoever opens the store next sweeps what is left.
        if let Ok(room) = self.store.room(DRAFTS) {
            remove(room.as_fd(), self.name.as_bytes()).ok();
        }
    }
}
