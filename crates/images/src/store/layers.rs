//! What a recipe's steps made: trees of the store, found again by what they were made from.
//!
//! Nothing here is half: a step's tree is a draft until it is whole, and is remembered afterwards. What is remembered of a
//! tree that was pruned means nothing.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::AsFd;

use blastbox_wire::agent::SUDO_PROGRAM;
use blastbox_wire::event::Hash;
use rustix::fs::{FileType, ResolveFlags, readlinkat};
use rustix::io::Errno;

use super::draft::{Draft, Kept};
use super::facts::{Facts, ImageConfig, Source};
use super::inner::{is_directory, real};
use super::name::{ImageName, ImageRef};
use super::place::{LAYERS, MOST_FACTS, Store, folder};
use super::{StoreError, StoredImage};
use crate::tree::beneath::{hold, kind, names};
use crate::tree::copy::{Content, copy_directory, copy_file};
use crate::tree::{Caps, TreeError, TreeWriter, share, unpack_at};

/// Where the agent of a box that has a root puts a link to its `sudo`, which is none of the image's business.
const SUDO_PLACE: (&str, &[u8]) = ("usr/local/bin", b"sudo");
/// What a box lays over the image's own.
const COVERED: &[u8] = b"etc/resolv.conf";

/// A tree that is made from another one.
#[derive(Debug)]
pub struct Derived<'a> {
    draft: Draft<'a>,
    writer: TreeWriter,
    parent: &'a StoredImage,
}

impl Store {
    /// The tree that was made from exactly this, if it is still there and no larger than is wanted now.
    pub fn recall(&self, key: &Hash, caps: Caps) -> Result<Option<Hash>, StoreError> {
        let text = match self.read(LAYERS, &folder(key)) {
            Err(StoreError::Place { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Ok(None);
            }
            text => text?,
        };
        let digest = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
        let Some(digest) = digest else { return Ok(None) };
        let fits = |facts: &Facts| facts.bytes <= caps.bytes && facts.entries <= caps.entries;
        Ok(self.facts(&digest).ok().filter(fits).map(|_| digest))
    }

    /// Remembers what a tree was made from.
    pub fn remember(&self, key: &Hash, digest: &Hash) -> Result<(), StoreError> {
        // Whoever opens the store meanwhile sweeps what is half written.
        let _lock = self.lock()?;
        self.write(LAYERS, &folder(key), format!("{digest}\n").as_bytes())
    }

    /// Opens a tree by its digest, whatever its names say of it.
    pub fn open_tree(&self, digest: &Hash) -> Result<StoredImage, StoreError> {
        let image = ImageRef { name: None, digest: Some(*digest) };
        let facts = match self.facts(digest) {
            Err(StoreError::Place { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(self.unknown(&image)?);
            }
            facts => Facts { config: ImageConfig::default(), ..facts? },
        };
        match StoredImage::open(self, &image, facts)? {
            Some(found) => Ok(found),
            None => Err(self.unknown(&image)?),
        }
    }

    /// Gives a tree of the store a name, with what is to be said of it under that name.
    pub fn name_tree(
        &self,
        name: &ImageName,
        tree: &StoredImage,
        source: Source,
        config: ImageConfig,
    ) -> Result<Facts, StoreError> {
        let facts = Facts { source, config, ..tree.facts().clone() };
        let failed = |error: serde_json::Error| StoreError::Place {
            tried: "write the facts of an image in",
            path: self.path().to_owned(),
            source: error.into(),
        };
        let text = serde_json::to_vec_pretty(&facts).map_err(failed)?;
        if text.len() > MOST_FACTS {
            return Err(StoreError::NotAnImage { why: "what it says beside its files is longer than 4 MiB" });
        }
        let _lock = self.lock()?;
        self.name(name, &facts.digest, &text)?;
        Ok(facts)
    }

    /// Begins a tree that is made from another one.
    pub fn derive<'a>(&'a self, parent: &'a StoredImage, caps: Caps) -> Result<Derived<'a>, StoreError> {
        let draft = self.begin()?;
        let writer = draft.writer(caps)?;
        Ok(Derived { draft, writer, parent })
    }
}

impl Derived<'_> {
    /// Takes over what the other one has, but for these directories at its top.
    pub fn inherit(&mut self, but: &[&str]) -> Result<(), StoreError> {
        let parent = self.parent.directory().as_fd();
        copy_directory(&mut self.writer, parent, &[], but, Content::Shared, &mut |_| {})?;
        Ok(())
    }

    /// Fills a directory at its top from an archive of a box. Trust: guest, as every archive.
    pub fn fill(&mut self, top: &str, from: &mut dyn Read) -> Result<(), StoreError> {
        // An archive of a directory says nothing of the directory itself.
        let parent = rustix::fs::statat(self.parent.directory(), top, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
        self.writer.directory(&[top.as_bytes()], parent.map_or(0o755, |stat| stat.st_mode))?;
        unpack_at(&mut self.writer, from, top.as_bytes())?;
        Ok(())
    }

    /// Takes away what is the box's and not the image's.
    pub fn clean(&mut self) -> Result<(), StoreError> {
        // Wherever links of the image lead that place. One that leads elsewhere is the image's own.
        let (place, name) = SUDO_PLACE;
        let place = self.real(place)?;
        let link = hold(self.draft.directory().as_fd(), &names(place.as_bytes())?)
            .and_then(|above| readlinkat(above, name, Vec::new()));
        if link.is_ok_and(|text| text.as_bytes() == SUDO_PROGRAM.as_bytes()) {
            self.writer.take_away(&[place.as_bytes(), b"/", name].concat())?;
        }
        let parts = names(COVERED)?;
        let Some((name, above)) = parts.split_last() else { return Ok(()) };
        let Ok(above) = hold(self.parent.directory().as_fd(), above) else { return Ok(()) };
        // In a tree of the store it is always a file.
        if matches!(kind(above.as_fd(), name), Ok(Some(FileType::RegularFile))) {
            copy_file(&mut self.writer, above.as_fd(), name, &parts)?;
        }
        Ok(())
    }

    /// Makes a directory where there is none.
    pub fn directory(&mut self, path: &str) -> Result<(), StoreError> {
        let real = self.real(path)?;
        let parts = names(real.as_bytes())?;
        for length in 1..=parts.len() {
            let part = parts.get(..length).unwrap_or_default();
            // One that is there keeps its mode, and a file is not made a directory.
            let Some((name, above)) = part.split_last() else { continue };
            let there =
                hold(self.draft.directory().as_fd(), above).and_then(|above| kind(above.as_fd(), name));
            match there {
                Ok(Some(FileType::Directory)) => {}
                Ok(Some(_)) => {
                    return Err(StoreError::Source {
                        path: path.into(),
                        why: "something of the image that is no directory is in its place".into(),
                    });
                }
                Ok(None) | Err(_) => self.writer.directory(part, 0o755)?,
            }
        }
        Ok(())
    }

    fn is_directory(&self, path: &str) -> Result<bool, StoreError> {
        is_directory(self.draft.directory().as_fd(), path)
    }

    /// Copies one file or directory of a directory of the host. With a `/` at its end the place is a directory.
    pub fn copy(&mut self, context: impl AsFd, from: &str, to: &str) -> Result<(), StoreError> {
        let failed = |errno: Errno| StoreError::Source {
            path: from.into(),
            why: std::io::Error::from(errno).to_string(),
        };
        let path = from.trim_matches('/');
        let path = if path.is_empty() { "." } else { path };
        // Links inside the context are followed there and nowhere else.
        let stay = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = rustix::fs::OFlags::RDONLY
            | rustix::fs::OFlags::NONBLOCK
            | rustix::fs::OFlags::NOCTTY
            | rustix::fs::OFlags::CLOEXEC;
        let source =
            rustix::fs::openat2(&context, path, flags, rustix::fs::Mode::empty(), stay).map_err(failed)?;
        let stat = rustix::fs::fstat(&source).map_err(failed)?;
        let folder = to.ends_with('/');
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => {
                self.directory(to)?;
                let real = self.real(to)?;
                copy_directory(
                    &mut self.writer,
                    source.as_fd(),
                    &names(real.as_bytes())?,
                    &[],
                    Content::Copied,
                    &mut |_| {},
                )?;
                Ok(())
            }
            FileType::RegularFile => {
                let name = path.rsplit('/').next().unwrap_or(path);
                // Into a directory that is there, never in its place.
                let folder = folder || self.is_directory(to)?;
                let to = if folder { format!("{}/{name}", to.trim_end_matches('/')) } else { to.to_owned() };
                let (above, last) = to.rsplit_once('/').unwrap_or(("", &to));
                self.directory(above)?;
                let real = format!("{}/{last}", self.real(above)?);
                let parts = names(real.as_bytes())?;
                let mut made = self.writer.file(&parts, u64::try_from(stat.st_size).unwrap_or(0))?;
                let mut source = std::fs::File::from(source).take(u64::try_from(stat.st_size).unwrap_or(0));
                std::io::copy(&mut source, &mut made)
                    .map_err(|error| TreeError::write(real.as_bytes(), error))?;
                crate::tree::finish(&made, real.as_bytes(), stat.st_mode, stat.st_mtime)?;
                Ok(())
            }
            _ => Err(StoreError::Source {
                path: from.into(),
                why: "it is neither a file nor a directory".into(),
            }),
        }
    }

    fn real(&self, path: &str) -> Result<String, StoreError> {
        real(self.draft.directory().as_fd(), path)
    }

    /// Looks at it, gives it its digest and puts it into the store. What it has in common with the other one takes room once.
    pub fn keep(self, recipe: Hash, tell: &mut dyn FnMut(u64)) -> Result<Kept, StoreError> {
        self.keep_as(recipe, None, tell)
    }

    /// The same under a name, in one step: from then on only whoever takes the name away lets the tree go.
    pub fn keep_as(
        self,
        recipe: Hash,
        name: Option<&ImageName>,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Kept, StoreError> {
        let Self { draft, writer, parent } = self;
        let mut made = writer.made();
        let shared = share::share(draft.directory().as_fd(), parent.directory().as_fd())?;
        made.shared.files = made.shared.files.saturating_add(shared.files);
        made.shared.bytes = made.shared.bytes.saturating_add(shared.bytes);
        let source = Source::Recipe { recipe, from: parent.digest() };
        draft.keep(made, source, ImageConfig::default(), name, tell)
    }
}

/// What a step is made from: whatever of it differs makes another key.
#[must_use]
pub fn layer_key(parent: &Hash, env: &BTreeMap<String, String>, words: &[&str]) -> Hash {
    let parent = parent.to_string();
    let mut parts: Vec<&[u8]> = vec![b"blastbox-layer 1", parent.as_bytes()];
    let count = env.len().to_string();
    parts.push(count.as_bytes());
    for (name, value) in env {
        parts.extend([name.as_bytes(), value.as_bytes()]);
    }
    parts.extend(words.iter().map(|word| word.as_bytes()));
    // Lengths first, so that no two lists have the same bytes.
    let framed: Vec<Vec<u8>> =
        parts.iter().map(|part| [part.len().to_string().as_bytes(), b":", part].concat()).collect();
    Hash::of(framed.iter().map(Vec::as_slice))
}
