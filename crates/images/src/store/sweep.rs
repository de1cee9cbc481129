//! Listing, checking and taking away.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use blastbox_wire::event::Hash;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::StoreError;
use super::facts::Facts;
use super::name::{ImageName, ImageRef};
use super::place::{BLOBS, DRAFTS, FACTS, LAYERS, NAMES, NEW, Store, TREES, facts_file, folder, random_word};
use crate::machine::forget_disk;
use crate::tree::beneath::{list, remove};
use crate::tree::digest;

/// One image of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// What is known of it.
    pub facts: Facts,
    /// Every name that means it: these files, from the same source, run in the same way.
    pub names: Vec<ImageName>,
    /// Whether a box uses it now.
    pub in_use: bool,
}

/// What was taken away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Images that had no name.
    pub images: Vec<Hash>,
    /// Images that have no name and stay, because a box uses them.
    pub in_use: Vec<Hash>,
    /// Bytes of content that are free now, downloads included.
    pub bytes: u64,
}

/// Which images somebody needs who has no lock on them, and who that is.
pub type Needs = BTreeMap<Hash, Vec<String>>;

const LOOK: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Store {
    /// Every image, newest first.
    pub fn list(&self) -> Result<Vec<Listed>, StoreError> {
        let mut trees: BTreeMap<Hash, Vec<Listed>> = BTreeMap::new();
        for name in self.names()?.into_keys() {
            // Somebody may take it away meanwhile.
            let Ok(Some(facts)) = self.known_as(&name) else { continue };
            let same = |listed: &&mut Listed| {
                listed.facts.source == facts.source && listed.facts.config == facts.config
            };
            let of_tree = trees.entry(facts.digest).or_default();
            match of_tree.iter_mut().find(same) {
                Some(listed) => listed.names.push(name),
                None => of_tree.push(Listed { facts, names: vec![name], in_use: false }),
            }
        }
        let mut all = Vec::new();
        for digest in self.digests()? {
            // Locked for a moment only; whoever opens the image meanwhile waits for it.
            let in_use = self.taken(&digest)?.is_none();
            let named = trees.remove(&digest).unwrap_or_default();
            if named.is_empty()
                && let Ok(facts) = self.facts(&digest)
            {
                all.push(Listed { facts, names: Vec::new(), in_use });
            }
            all.extend(named.into_iter().map(|listed| Listed { in_use, ..listed }));
        }
        all.sort_by(|one, other| {
            other.facts.made_at.cmp(&one.facts.made_at).then(one.names.cmp(&other.names))
        });
        Ok(all)
    }

    fn digests(&self) -> Result<Vec<Hash>, StoreError> {
        let trees = list(self.room(TREES)?.as_fd()).map_err(self.failed("list"))?;
        let digest = |name: Vec<u8>| String::from_utf8(name).ok()?.replacen('-', ":", 1).parse().ok();
        Ok(trees.into_iter().filter_map(digest).collect())
    }

    /// The tree, locked against everybody. `None`: a box uses it. What is not there is nobody's.
    fn taken(&self, digest: &Hash) -> Result<Option<Option<OwnedFd>>, StoreError> {
        let tree = match openat(self.room(TREES)?, folder(digest), LOOK, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(Some(None)),
            tree => tree.map_err(self.failed("open an image of"))?,
        };
        match flock(&tree, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Some(tree))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(self.failed("lock an image of")(errno)),
        }
    }

    /// Takes a name away, and the image with it where it has no other. Refused while a box uses it.
    pub fn remove(&self, image: &ImageRef) -> Result<Option<Hash>, StoreError> {
        self.remove_but(image, || Ok(Needs::new()))
    }

    /// The same, but for what boxes need that do not run now. Asked when no box runs with it any more, and none can begin to: one that
    /// came to lie on disk meanwhile is known then.
    pub fn remove_but<E: From<StoreError>>(
        &self,
        image: &ImageRef,
        needed: impl FnOnce() -> Result<Needs, E>,
    ) -> Result<Option<Hash>, E> {
        let digest = self.resolve(image)?;
        let _lock = self.lock()?;
        let names = self.names()?;
        let others =
            names.iter().filter(|(name, meant)| **meant == digest && image.name.as_ref() != Some(name));
        if let (Some(name), true) = (&image.name, others.count() > 0) {
            unlinkat(self.room(NAMES)?, name.as_str(), AtFlags::empty())
                .map_err(self.failed("remove a name of"))?;
            return Ok(None);
        }
        let Some(tree) = self.taken(&digest)? else {
            return Err(StoreError::InUse { image: image.clone() }.into());
        };
        if let Some(boxes) = needed()?.remove(&digest) {
            return Err(StoreError::Needed { image: image.clone(), boxes }.into());
        }
        if tree.is_none() && image.name.is_none() {
            return Err(self.unknown(image)?.into());
        }
        for (name, _) in names.iter().filter(|(_, meant)| **meant == digest) {
            unlinkat(self.room(NAMES)?, name.as_str(), AtFlags::empty())
                .map_err(self.failed("remove a name of"))?;
        }
        self.discard(&digest, tree)?;
        Ok(Some(digest))
    }

    /// Takes a name away, where something has it. Its image stays until somebody prunes.
    pub fn forget_name(&self, name: &ImageName) -> Result<(), StoreError> {
        let _lock = self.lock()?;
        match unlinkat(self.room(NAMES)?, name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed("remove a name of")(errno)),
        }
    }

    /// Takes away every image without a name that no box uses, and every download.
    pub fn prune(&self) -> Result<Pruned, StoreError> {
        self.prune_but(|| Ok(BTreeSet::new()))
    }

    /// The same, but for these. Asked as in [`Store::remove_but`].
    pub fn prune_but<E: From<StoreError>>(
        &self,
        needed: impl FnOnce() -> Result<BTreeSet<Hash>, E>,
    ) -> Result<Pruned, E> {
        let mut pruned = Pruned::default();
        let _lock = self.lock()?;
        let named: BTreeSet<Hash> = self.names()?.into_values().collect();
        let mut free = Vec::new();
        for digest in self.digests()?.into_iter().filter(|digest| !named.contains(digest)) {
            match self.taken(&digest)? {
                None => pruned.in_use.push(digest),
                Some(tree) => free.push((digest, tree)),
            }
        }
        let needed = needed()?;
        for (digest, tree) in free.into_iter().filter(|(digest, _)| !needed.contains(digest)) {
            let bytes = self.facts(&digest).map_or(0, |facts| facts.bytes);
            self.discard(&digest, tree)?;
            pruned.images.push(digest);
            pruned.bytes = pruned.bytes.saturating_add(bytes);
        }
        let blobs = self.room(BLOBS)?;
        for name in list(blobs.as_fd()).map_err(self.failed("list"))? {
            let held = openat(&blobs, name.as_slice(), OFlags::RDONLY | OFlags::NOFOLLOW, Mode::empty());
            let Ok(held) = held else { continue };
            // One that is being filled is its maker's.
            if flock(&held, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let size = rustix::fs::fstat(&held).map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
            remove(blobs.as_fd(), &name).map_err(self.failed("remove a download of"))?;
            pruned.bytes = pruned.bytes.saturating_add(size);
        }
        Ok(pruned)
    }

    /// Moves a tree out of the way first, so that nobody ever sees half of it. Its lock is let go when it has moved:
    /// whoever waits to open it need not wait until all of it is gone.
    fn discard(&self, digest: &Hash, tree: Option<OwnedFd>) -> Result<(), StoreError> {
        let drafts = self.room(DRAFTS)?;
        let word = random_word()?;
        let moved = renameat(self.room(TREES)?, folder(digest), &drafts, word.as_str());
        drop(tree);
        match moved {
            Ok(()) => remove(drafts.as_fd(), word.as_bytes()).map_err(self.failed("remove an image of"))?,
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(self.failed("remove an image of")(errno)),
        }
        forget_disk(self.path(), digest).map_err(|source| StoreError::Place {
            tried: "remove a disk of",
            path: self.path().to_owned(),
            source,
        })?;
        match unlinkat(self.room(FACTS)?, facts_file(digest), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.failed("remove the facts of an image of")(errno)),
        }
    }

    /// Reads an image whole and holds it against its digest.
    pub fn verify(&self, image: &ImageRef, tell: &mut dyn FnMut(u64)) -> Result<Facts, StoreError> {
        let found = self.find(image)?;
        let facts = found.facts();
        let sum = digest::digest(found.directory().as_fd(), tell).map_err(|source| StoreError::Place {
            tried: "read an image of",
            path: self.path().to_owned(),
            source,
        })?;
        if sum.digest == facts.digest {
            Ok(facts.clone())
        } else {
            Err(StoreError::Changed { image: image.clone(), found: sum.digest })
        }
    }

    /// Takes away what is half-made and nobody's any more.
    pub(super) fn sweep(&self) -> Result<(), StoreError> {
        let _lock = self.lock()?;
        let drafts = self.room(DRAFTS)?;
        for name in list(drafts.as_fd()).map_err(self.failed("sweep"))? {
            let held = openat(&drafts, name.as_slice(), LOOK, Mode::empty());
            if held.is_ok_and(|held| flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok()) {
                remove(drafts.as_fd(), &name).map_err(self.failed("sweep"))?;
            }
        }
        let blobs = self.room(BLOBS)?;
        for name in list(blobs.as_fd()).map_err(self.failed("sweep"))? {
            let half = name.starts_with(NEW.as_bytes());
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let held = openat(&blobs, name.as_slice(), flags, Mode::empty());
            if half && held.is_ok_and(|held| flock(&held, FlockOperation::NonBlockingLockExclusive).is_ok()) {
                remove(blobs.as_fd(), &name).map_err(self.failed("sweep"))?;
            }
        }
        for room in [NAMES, FACTS, LAYERS] {
            let room = self.room(room)?;
            for name in list(room.as_fd()).map_err(self.failed("sweep"))? {
                if name.starts_with(NEW.as_bytes()) {
                    remove(room.as_fd(), &name).map_err(self.failed("sweep"))?;
                }
            }
        }
        // Facts whose tree never came.
        let known: Vec<String> = self.digests()?.iter().map(facts_file).collect();
        let facts = self.room(FACTS)?;
        for name in list(facts.as_fd()).map_err(self.failed("sweep"))? {
            if !known.iter().any(|known| known.as_bytes() == name) {
                remove(facts.as_fd(), &name).map_err(self.failed("sweep"))?;
            }
        }
        Ok(())
    }
}
