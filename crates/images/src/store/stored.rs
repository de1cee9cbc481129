//! An image of the store, opened and held.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use blastbox_wire::event::Hash;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, fstat, openat, statat};
use rustix::io::Errno;

use super::StoreError;
use super::facts::{Facts, ImageConfig};
use super::name::ImageRef;
use super::place::{Store, TREES, folder};
use crate::DirectoryImage;
use crate::machine::Workshop;

/// An image of the store. While it or one of its [`Hold`]s is there, nothing takes its tree away.
#[derive(Debug)]
pub struct StoredImage {
    image: ImageRef,
    directory: DirectoryImage,
    facts: Facts,
    hold: Hold,
    workshop: Arc<Workshop>,
}

/// Keeps the tree of an image where it is. Cheap to clone; the kernel lets go of it with the process, however that ends.
#[derive(Debug, Clone)]
pub struct Hold(Arc<OwnedFd>);

impl StoredImage {
    /// `None`: there is no such tree, or it was just taken away.
    pub(super) fn open(store: &Store, image: &ImageRef, facts: Facts) -> Result<Option<Self>, StoreError> {
        let trees = store.room(TREES)?;
        let place = folder(&facts.digest);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let tree = match openat(&trees, place.as_str(), flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            tree => tree.map_err(store.failed("open an image of"))?,
        };
        // Whoever has it alone only looks whether a box uses it, or moves it away: either takes a moment.
        rustix::io::retry_on_intr(|| flock(&tree, FlockOperation::LockShared))
            .map_err(store.failed("hold an image of"))?;
        // Whoever had it locked a moment ago may have moved it away.
        let (ours, there) = (fstat(&tree), statat(&trees, place.as_str(), AtFlags::SYMLINK_NOFOLLOW));
        if !matches!((ours, there), (Ok(ours), Ok(there)) if ours.st_ino == there.st_ino) {
            return Ok(None);
        }
        let directory = DirectoryImage::open_stored(&store.path().join(TREES).join(place))?;
        let hold = Hold(Arc::new(tree));
        let workshop = Arc::new(Workshop::new(store.path(), facts.digest, hold.clone()));
        Ok(Some(Self { image: image.clone(), directory, facts, hold, workshop }))
    }

    /// The digest of its tree.
    #[must_use]
    pub fn digest(&self) -> Hash {
        self.facts.digest
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What it says about how its programs are to be run.
    #[must_use]
    pub fn config(&self) -> &ImageConfig {
        &self.facts.config
    }

    /// The digest of what it says about that: the same files may be run in another way under another name.
    pub(crate) fn config_digest(&self) -> Option<Hash> {
        serde_json::to_vec(self.config()).ok().map(|text| Hash::of([text.as_slice()]))
    }

    /// Its name in receipts and ledgers, always with its digest: what a name means may change.
    pub(crate) fn label(&self) -> String {
        ImageRef { name: self.image.name.clone(), digest: Some(self.digest()) }.to_string()
    }

    pub(crate) fn directory(&self) -> &DirectoryImage {
        &self.directory
    }

    pub(crate) fn workshop(&self) -> &Arc<Workshop> {
        &self.workshop
    }

    pub(crate) fn hold(&self) -> Hold {
        self.hold.clone()
    }
}

#[cfg(test)]
impl Hold {
    pub(crate) fn of(tree: OwnedFd) -> Self {
        Self(Arc::new(tree))
    }
}

impl AsFd for Hold {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
