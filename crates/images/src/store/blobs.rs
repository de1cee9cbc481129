//! What was downloaded and is whole, for as long as somebody needs it.
//!
//! A blob stands under the name of its digest only after all of it was read and held against it. What breaks off has another
//! name, and is swept where nobody holds it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use blastbox_wire::event::Hash;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, openat, renameat, unlinkat};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

use super::StoreError;
use super::place::{BLOBS, NEW, Store, folder, random_word};
use crate::oci::oci_text::{Descriptor, MOST_DOCUMENT};
use crate::oci::{self, OciError, Verified};

const READ: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The blobs of a store, while something is pulled. Those that were used are held: nobody prunes them.
#[derive(Debug)]
pub struct Blobs<'a> {
    store: &'a Store,
    room: OwnedFd,
    held: Vec<(Hash, File)>,
}

/// A blob that is not whole yet. Dropping it takes it away.
#[derive(Debug)]
pub struct BlobDraft {
    room: OwnedFd,
    name: Option<String>,
    file: File,
    hasher: Sha256,
    written: u64,
}

impl Store {
    /// The downloads of this store.
    pub fn blobs(&self) -> Result<Blobs<'_>, StoreError> {
        Ok(Blobs { store: self, room: self.room(BLOBS)?, held: Vec::new() })
    }
}

impl Blobs<'_> {
    /// Whether this blob is there, whole. It is read and held against its digest: a disk is no better than a network.
    pub fn has(&mut self, blob: &Descriptor) -> Result<bool, StoreError> {
        let file = match openat(&self.room, folder(&blob.digest), READ, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(self.store.failed("read a download of")(errno)),
        };
        if flock(&file, FlockOperation::NonBlockingLockShared).is_err() {
            return Ok(false);
        }
        let file = File::from(file);
        let whole = file.try_clone().is_ok_and(|copy| Verified::new(copy, blob).finish(blob).is_ok());
        if whole {
            self.held.push((blob.digest, file));
        }
        Ok(whole)
    }

    /// Begins a blob.
    pub fn begin(&self, _blob: &Descriptor) -> Result<BlobDraft, StoreError> {
        // Between making and holding it nobody may sweep.
        let _lock = self.store.lock()?;
        let failed = self.store.failed("write a download to");
        let name = format!("{NEW}{}", random_word()?);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.room, name.as_str(), flags, Mode::from_raw_mode(0o600)).map_err(&failed)?;
        flock(&file, FlockOperation::NonBlockingLockShared).map_err(&failed)?;
        let room = self.store.room(BLOBS)?;
        Ok(BlobDraft { room, name: Some(name), file: File::from(file), hasher: Sha256::new(), written: 0 })
    }

    /// Gives a whole blob its name.
    pub fn keep(&mut self, mut draft: BlobDraft, blob: &Descriptor) -> Result<(), StoreError> {
        let failed = self.store.failed("write a download to");
        if draft.digest() != blob.digest || draft.written != blob.size {
            return Err(failed(Errno::BADMSG));
        }
        if let Some(name) = draft.name.take() {
            // Nobody takes away a file of that name now, and then this one in its place.
            let _lock = self.store.lock()?;
            renameat(&self.room, name.as_str(), &self.room, folder(&blob.digest)).map_err(&failed)?;
        }
        let file = draft.file.try_clone().map_err(|source| StoreError::Place {
            tried: "hold a download of",
            path: self.store.path().to_owned(),
            source,
        })?;
        self.held.push((blob.digest, file));
        Ok(())
    }

    /// A short blob, whole and checked.
    pub fn read(&self, blob: &Descriptor) -> Result<Vec<u8>, OciError> {
        let unreadable = |source| OciError::Blob { digest: blob.digest.to_string(), source };
        let file = oci::Blobs::open(self, &blob.digest).map_err(unreadable)?;
        let mut from = Verified::new(file, blob);
        let mut text = Vec::new();
        (&mut from).take(MOST_DOCUMENT).read_to_end(&mut text).map_err(unreadable)?;
        from.finish(blob)?;
        Ok(text)
    }

    /// Takes away what was held and nobody else holds: another pull may have a layer of its own image there.
    pub fn discard(mut self) {
        let held: BTreeSet<Hash> =
            std::mem::take(&mut self.held).into_iter().map(|(digest, _)| digest).collect();
        // Under the lock nobody prunes and nobody sweeps. What stays is taken away by whoever holds it, or by `prune`.
        let Ok(_lock) = self.store.lock() else { return };
        for digest in held {
            let name = folder(&digest);
            // Not what was held: another download of the same may have taken its name.
            let Ok(file) = openat(&self.room, name.as_str(), READ, Mode::empty()) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                unlinkat(&self.room, name.as_str(), AtFlags::empty()).ok();
            }
        }
    }
}

impl oci::Blobs for Blobs<'_> {
    fn open(&self, digest: &Hash) -> io::Result<File> {
        // What is held is what was checked, whoever has taken its name away or given it to another file since.
        if let Some((_, held)) = self.held.iter().find(|(known, _)| known == digest) {
            // Opened anew, so that each reader has a place of his own in it.
            let own = format!("/proc/self/fd/{}", held.as_raw_fd());
            match openat(CWD, own.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
                // A host that shows no `/proc`.
                Err(Errno::NOENT | Errno::ACCESS) => {}
                opened => return Ok(File::from(opened?)),
            }
        }
        Ok(File::from(openat(&self.room, folder(digest), READ, Mode::empty())?))
    }
}

impl BlobDraft {
    /// Adds a piece.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), StoreError> {
        self.hasher.update(piece);
        self.written = self.written.saturating_add(u64::try_from(piece.len()).unwrap_or(0));
        self.file.write_all(piece).map_err(|source| StoreError::Place {
            tried: "write a download to",
            path: std::path::PathBuf::from(BLOBS),
            source,
        })
    }

    /// Bytes so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The digest of what was written so far.
    #[must_use]
    pub fn digest(&self) -> Hash {
        Hash::from_bytes(self.hasher.clone().finalize().into())
    }
}

impl Drop for BlobDraft {
    fn drop(&mut self) {
        if let Some(name) = self.name.take() {
            unlinkat(self.room.as_fd(), name.as_str(), AtFlags::empty()).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::Blobs as _;
    use crate::testing::Scratch;

    const LAYER: &[u8] = b"a layer that two images have";

    fn layer() -> Descriptor {
        let (digest, size) = (Hash::of([LAYER]), u64::try_from(LAYER.len()).unwrap());
        Descriptor { media_type: String::new(), digest, size, platform: None, annotations: None }
    }

    fn fetched<'a>(store: &'a Store) -> Blobs<'a> {
        let mut blobs = store.blobs().unwrap();
        let mut draft = blobs.begin(&layer()).unwrap();
        draft.write(LAYER).unwrap();
        blobs.keep(draft, &layer()).unwrap();
        blobs
    }

    fn read(blobs: &Blobs<'_>) -> Vec<u8> {
        let mut text = Vec::new();
        blobs.open(&layer().digest).unwrap().read_to_end(&mut text).unwrap();
        text
    }

    #[test]
    fn a_layer_that_another_pull_holds_stays() {
        let scratch = Scratch::new("shared-layer");
        let store = Store::open(&scratch.path().join("store")).unwrap();
        let there = || std::fs::read_dir(store.path().join(BLOBS)).unwrap().count();
        // One that was found there, and one that was downloaded at the same time.
        for second in [
            |store| {
                let mut blobs = Store::blobs(store).unwrap();
                assert!(blobs.has(&layer()).unwrap());
                blobs
            },
            fetched,
        ] {
            let first = fetched(&store);
            let second = second(&store);
            first.discard();
            assert_eq!((there(), read(&second).as_slice()), (1, LAYER));
            // A third pull finds it, and nobody downloads it again.
            assert!(store.blobs().unwrap().has(&layer()).unwrap());
            second.discard();
            assert_eq!(there(), 0, "the last one takes it away");
        }
    }

    #[test]
    fn what_is_held_can_be_read_whoever_takes_its_name_away() {
        let scratch = Scratch::new("held-layer");
        let store = Store::open(&scratch.path().join("store")).unwrap();
        let blobs = fetched(&store);
        std::fs::remove_file(store.path().join(BLOBS).join(folder(&layer().digest))).unwrap();
        // Twice: each from its beginning.
        assert_eq!((read(&blobs).as_slice(), read(&blobs).as_slice()), (LAYER, LAYER));
        assert_eq!(blobs.read(&layer()).unwrap(), LAYER);
    }
}
