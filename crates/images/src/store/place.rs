//! The directory of a store, and what its names mean.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use blastbox_wire::event::Hash;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, flock, fstat, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;

use super::facts::Facts;
use super::name::{ImageName, ImageRef};
use super::{StoreError, StoredImage};
use crate::tree::beneath::list;

pub(super) const TREES: &str = "trees";
pub(super) const FACTS: &str = "facts";
pub(super) const NAMES: &str = "names";
pub(super) const DRAFTS: &str = "drafts";
pub(super) const BLOBS: &str = "blobs";
/// What steps of recipes made: from a key to a digest.
pub(super) const LAYERS: &str = "layers";
const ROOMS: [&str; 6] = [TREES, FACTS, NAMES, DRAFTS, BLOBS, LAYERS];
/// Says that a directory is a store: what is in any other is not ours to sweep.
pub(super) const MARKER: &str = "blastbox-images";
/// What a file is called before it is whole. No name begins like that.
pub(super) const NEW: &str = ".new-";
/// Facts and names are small.
const MOST_TEXT: u64 = 4 << 20;
/// The longest facts, which fit into the file of a name with a digest before them.
pub(super) const MOST_FACTS: usize = (4 << 20) - 1024;

/// A store, opened.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    root: OwnedFd,
}

/// Keeps others from adding and taking away, until it is dropped.
#[derive(Debug)]
pub(super) struct StoreLock {
    _file: OwnedFd,
}

impl Store {
    /// Opens it, makes it where there is nothing or an empty directory, and takes away what crashed imports have left.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let failed = |tried, source| StoreError::Place { tried, path: path.to_owned(), source };
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| failed("make", e))?;
        let store = Self::at(path)?.ok_or_else(|| failed("open", io::ErrorKind::NotFound.into()))?;
        if !store.is_marked()? {
            // Before anything else is made, so that nobody ever sees a store without it.
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            openat(&store.root, MARKER, flags, Mode::from_raw_mode(0o600)).map_err(store.failed("make"))?;
        }
        for room in ROOMS {
            match mkdirat(&store.root, room, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed("make", errno.into())),
            }
        }
        store.sweep()?;
        Ok(store)
    }

    /// Opens it to use what is in it, and changes nothing. `None`: there is no store.
    pub fn look(path: &Path) -> Result<Option<Self>, StoreError> {
        let Some(store) = Self::at(path)? else { return Ok(None) };
        Ok(store.is_marked()?.then_some(store))
    }

    fn at(path: &Path) -> Result<Option<Self>, StoreError> {
        let failed = |tried, source| StoreError::Place { tried, path: path.to_owned(), source };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = match openat(CWD, path, flags, Mode::empty()) {
            Ok(root) => root,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(failed("open", errno.into())),
        };
        let found = fstat(&root).map_err(|errno| failed("look at", errno.into()))?;
        // Whoever can write there decides what runs in boxes. Modes are not put right: it may be the wrong directory.
        if found.st_uid != rustix::process::geteuid().as_raw() || found.st_mode & 0o022 != 0 {
            return Err(StoreError::NotOurs { path: path.to_owned() });
        }
        let path = std::path::absolute(path).map_err(|source| failed("find", source))?;
        Ok(Some(Self { path, root }))
    }

    /// Whether it is a store. `false`: it is empty, and may become one. Anything else is refused.
    fn is_marked(&self) -> Result<bool, StoreError> {
        let marked = || match statat(&self.root, MARKER, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(self.failed("look at")(errno)),
        };
        if marked()? {
            return Ok(true);
        }
        if list(self.root.as_fd()).map_err(self.failed("list"))?.is_empty() {
            return Ok(false);
        }
        // Somebody else may have made it a store meanwhile, and the mark comes first.
        if marked()? { Ok(true) } else { Err(StoreError::NotAStore { path: self.path.clone() }) }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn failed(&self, tried: &'static str) -> impl Fn(Errno) -> StoreError + '_ {
        move |errno| StoreError::Place { tried, path: self.path.clone(), source: errno.into() }
    }

    pub(super) fn room(&self, name: &str) -> Result<OwnedFd, StoreError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&self.root, name, flags, Mode::empty()).map_err(self.failed("open a directory of"))
    }

    pub(super) fn lock(&self) -> Result<StoreLock, StoreError> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file =
            openat(&self.root, "lock", flags, Mode::from_raw_mode(0o600)).map_err(self.failed("lock"))?;
        flock(&file, FlockOperation::LockExclusive).map_err(self.failed("lock"))?;
        Ok(StoreLock { _file: file })
    }

    /// What every name means.
    pub fn names(&self) -> Result<BTreeMap<ImageName, Hash>, StoreError> {
        let room = match self.room(NAMES) {
            Ok(room) => room,
            Err(StoreError::Place { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(BTreeMap::new());
            }
            Err(error) => return Err(error),
        };
        let mut names = BTreeMap::new();
        for name in list(room.as_fd()).map_err(self.failed("list"))? {
            let name = std::str::from_utf8(&name).ok().and_then(|name| name.parse::<ImageName>().ok());
            let Some(name) = name else { continue };
            if let Some(digest) = self.named(&name)? {
                names.insert(name, digest);
            }
        }
        Ok(names)
    }

    /// The tree that a name means.
    pub fn named(&self, name: &ImageName) -> Result<Option<Hash>, StoreError> {
        Ok(self.meaning(name)?.map(|(digest, _)| digest))
    }

    /// What a name means, read in one piece: the tree, and the text of what is known of it under this name.
    fn meaning(&self, name: &ImageName) -> Result<Option<(Hash, Vec<u8>)>, StoreError> {
        let mut text = match self.read(NAMES, name.as_str()) {
            Err(StoreError::Place { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            text => text?,
        };
        let facts = text.split_off(text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len()));
        let digest = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
        let digest = digest.ok_or_else(|| self.failed("read a name of")(Errno::BADMSG))?;
        Ok(Some((digest, facts)))
    }

    /// What is known of a tree, as whoever brought it first has said it. What a name means is [`Store::meant`].
    pub(super) fn facts(&self, digest: &Hash) -> Result<Facts, StoreError> {
        self.parsed(&self.read(FACTS, &facts_file(digest))?)
    }

    fn parsed(&self, text: &[u8]) -> Result<Facts, StoreError> {
        serde_json::from_slice(text).map_err(|source| StoreError::Place {
            tried: "read the facts of an image in",
            path: self.path.clone(),
            source: source.into(),
        })
    }

    /// What is known of an image under one of its names. A name that was written before names had facts of their own has
    /// those of its tree.
    pub(super) fn known_as(&self, name: &ImageName) -> Result<Option<Facts>, StoreError> {
        match self.meaning(name)? {
            None => Ok(None),
            Some((digest, text)) if text.trim_ascii().is_empty() => self.facts(&digest).map(Some),
            Some((digest, text)) => Ok(Some(Facts { digest, ..self.parsed(&text)? })),
        }
    }

    /// What is known of the image that a reference means. Trees are shared, and what an image says beside its files is
    /// not: a stranger's image with the same files must not change how the programs of another one are run.
    pub fn meant(&self, image: &ImageRef) -> Result<Facts, StoreError> {
        let digest = self.resolve(image)?;
        if let Some(name) = &image.name {
            return match self.known_as(name)? {
                // It may have got another meaning just now.
                Some(facts) if image.digest.is_none_or(|wanted| wanted == facts.digest) => Ok(facts),
                _ => Err(self.unknown(image)?),
            };
        }
        let mut found: Option<Facts> = None;
        for (name, _) in self.names()?.into_iter().filter(|(_, meant)| *meant == digest) {
            let Some(facts) = self.known_as(&name)?.filter(|facts| facts.digest == digest) else { continue };
            match &found {
                Some(known) if known.config != facts.config => return Err(StoreError::Ambiguous { digest }),
                Some(_) => {}
                None => found = Some(facts),
            }
        }
        match found.map_or_else(|| self.facts(&digest), Ok) {
            Err(StoreError::Place { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(self.unknown(image)?)
            }
            facts => facts,
        }
    }

    /// The digest that a reference means.
    pub fn resolve(&self, image: &ImageRef) -> Result<Hash, StoreError> {
        let ImageRef { name, digest } = image;
        let meant = match name {
            Some(name) => self.named(name)?,
            None => None,
        };
        match (name, meant, digest) {
            (Some(name), Some(found), Some(wanted)) if found != *wanted => {
                Err(StoreError::OtherDigest { name: name.clone(), found, wanted: *wanted })
            }
            (Some(_), Some(found), _) => Ok(found),
            (None, _, Some(wanted)) => Ok(*wanted),
            (_, _, _) => Err(self.unknown(image)?),
        }
    }

    /// Opens an image and holds it.
    pub fn find(&self, image: &ImageRef) -> Result<StoredImage, StoreError> {
        match StoredImage::open(self, image, self.meant(image)?)? {
            Some(found) => Ok(found),
            None => Err(self.unknown(image)?),
        }
    }

    pub(super) fn unknown(&self, image: &ImageRef) -> Result<StoreError, StoreError> {
        Ok(StoreError::Unknown { wanted: image.to_string(), known: self.names()?.into_keys().collect() })
    }

    pub(super) fn read(&self, room: &str, name: &str) -> Result<Vec<u8>, StoreError> {
        let failed = |source: io::Error| StoreError::Place { tried: "read", path: self.path.clone(), source };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(self.room(room)?, name, flags, Mode::empty()).map_err(self.failed("read"))?;
        let mut text = Vec::new();
        File::from(file).take(MOST_TEXT).read_to_end(&mut text).map_err(failed)?;
        Ok(text)
    }

    /// Writes a small file, whole or not at all.
    pub(super) fn write(&self, room: &str, name: &str, text: &[u8]) -> Result<(), StoreError> {
        let failed =
            |source: io::Error| StoreError::Place { tried: "write to", path: self.path.clone(), source };
        let room = self.room(room)?;
        let new = format!("{NEW}{}", random_word()?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&room, new.as_str(), flags, Mode::from_raw_mode(0o600))
            .map_err(self.failed("write to"))?;
        let mut file = File::from(file);
        let written = file.write_all(text).and_then(|()| file.sync_all()).map_err(failed);
        let named = written
            .and_then(|()| renameat(&room, new.as_str(), &room, name).map_err(self.failed("write to")));
        if named.is_err() {
            unlinkat(&room, new.as_str(), AtFlags::empty()).ok();
        }
        named
    }

    /// Gives a name to an image, or the name of another one. `facts`: as text.
    pub(super) fn name(&self, name: &ImageName, digest: &Hash, facts: &[u8]) -> Result<(), StoreError> {
        self.write(NAMES, name.as_str(), &[format!("{digest}\n").as_bytes(), facts].concat())
    }
}

/// The directory of a tree in the store, and the beginning of other names: `sha256-…`.
pub(super) fn folder(digest: &Hash) -> String {
    digest.to_string().replacen(':', "-", 1)
}

pub(super) fn facts_file(digest: &Hash) -> String {
    format!("{}.json", folder(digest))
}

/// Twelve letters that nobody else has.
pub(super) fn random_word() -> Result<String, StoreError> {
    word().map_err(|source| StoreError::Place { tried: "name something in", path: PathBuf::new(), source })
}

/// The same, for the rooms beside this one.
pub(crate) fn word() -> io::Result<String> {
    let mut bytes = [0_u8; 12];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes.iter().map(|byte| char::from(b'a' + byte % 26)).collect())
}
