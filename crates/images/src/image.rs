//! An image, opened.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;

use blastbox_wire::event::Hash;
use blastbox_wire::plan::{GuestPath, Slot, Step};

use crate::machine::{Parts, Workshop};
use crate::store::{Hold, ImageConfig, ImageRef, Store, StoreError, StoredImage};
use crate::{DirectoryImage, HostImage, ImageError, Language, ModuleImage, interpreter};

/// Where the root file system of a box comes from.
#[derive(Debug)]
pub enum Image {
    /// A read-only view of the host's programs with an /etc of our own.
    Host(HostImage),
    /// A directory that holds a whole root file system, shown read-only.
    Directory(DirectoryImage),
    /// An image of the store, shown read-only.
    Stored(Box<StoredImage>),
    /// A program without a root file system: tier `wasm` alone.
    Module(Box<ModuleImage>),
}

/// One tree at the top of the root that comes from the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Where it lies in the box.
    pub at: GuestPath,
    /// What it is for.
    pub used_for: TreeUse,
    /// Whether it is a directory, and not a single file.
    pub is_directory: bool,
}

/// What a tree of an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TreeUse {
    /// Programs and libraries.
    Programs,
    /// Settings: nothing is started from there.
    Settings,
}

impl Image {
    /// Opens `host`, or the directory that is named.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        match text {
            "" => Err(ImageError::Empty),
            "host" => Ok(Self::host()),
            path => Ok(Self::Directory(DirectoryImage::open(Path::new(path))?)),
        }
    }

    /// Opens `host`, an image of the store, or the directory that is named. A bare word that the store knows means the
    /// store; a path has a `/` in it, or is the only thing of that name.
    pub fn find(text: &str, store: Option<&Store>) -> Result<Self, ImageError> {
        if !Self::may_be_stored(text) {
            return Self::parse(text);
        }
        let found = match (text.parse::<ImageRef>(), store) {
            (Ok(image), Some(store)) => store.find(&image),
            (Ok(image), None) => Err(StoreError::Unknown { wanted: image.to_string(), known: Vec::new() }),
            (Err(bad), _) => Err(bad.into()),
        };
        match found {
            Ok(stored) => Ok(Self::Stored(Box::new(stored))),
            Err(StoreError::Unknown { .. } | StoreError::BadRef(_)) if Path::new(text).is_dir() => {
                Self::parse(text)
            }
            Err(error) => Err(ImageError::Store(Box::new(error))),
        }
    }

    /// Whether the text could be the name of a stored image: it is no path, and not `host`.
    #[must_use]
    pub fn may_be_stored(text: &str) -> bool {
        !matches!(text, "" | "host" | "." | "..") && !text.contains('/')
    }

    /// The view of this host.
    #[must_use]
    pub fn host() -> Self {
        Self::Host(HostImage::look())
    }

    /// The image's name in receipts: `host`, `dir:` and the path, or its name in the store (that of a module behind `module:`) with its digest.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Host(_) => "host".to_owned(),
            Self::Directory(directory) => format!("dir:{}", directory.path().display()),
            Self::Stored(stored) => stored.label(),
            Self::Module(module) => module.label(),
        }
    }

    /// The digest of its content, where it has a fixed one.
    #[must_use]
    pub fn digest(&self) -> Option<Hash> {
        match self {
            Self::Host(_) | Self::Directory(_) | Self::Module(_) => None,
            Self::Stored(stored) => Some(stored.digest()),
        }
    }

    /// What the image says about how its programs are to be run.
    #[must_use]
    pub fn config(&self) -> Option<&ImageConfig> {
        match self {
            Self::Host(_) | Self::Directory(_) | Self::Module(_) => None,
            Self::Stored(stored) => Some(stored.config()),
        }
    }

    /// The digest of that. Names with the same files may differ in it.
    #[must_use]
    pub fn config_digest(&self) -> Option<Hash> {
        match self {
            Self::Host(_) | Self::Directory(_) | Self::Module(_) => None,
            Self::Stored(stored) => stored.config_digest(),
        }
    }

    /// What keeps the image where it is for as long as a box uses it, where it could go away.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        match self {
            Self::Host(_) | Self::Directory(_) | Self::Module(_) => None,
            Self::Stored(stored) => Some(stored.hold()),
        }
    }

    /// What a guest of this image starts from, or why it could not be made; `None`: nobody has made it in its
    /// [`Image::workshop`], or this is no image of the store.
    #[must_use]
    pub fn machine(&self) -> Option<Result<&Parts, &str>> {
        match self {
            Self::Host(_) | Self::Directory(_) | Self::Module(_) => None,
            Self::Stored(stored) => stored.workshop().parts(),
        }
    }

    /// Whether there is a kernel that a guest of this image could start with. Cheap.
    #[must_use]
    pub fn has_kernel(&self) -> bool {
        match self {
            Self::Host(_) | Self::Directory(_) | Self::Module(_) => false,
            Self::Stored(stored) => stored.workshop().has_kernel(),
        }
    }

    /// Where what a guest of this image starts from is found or made. Only what has a digest becomes a disk.
    #[must_use]
    pub fn workshop(&self) -> Option<Arc<Workshop>> {
        match self {
            Self::Host(_) | Self::Directory(_) | Self::Module(_) => None,
            Self::Stored(stored) => Some(Arc::clone(stored.workshop())),
        }
    }

    /// The directory that must travel with a plan of this image, if it needs one.
    #[must_use]
    pub fn dir(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Host(_) | Self::Module(_) => None,
            Self::Directory(directory) => Some(directory.as_fd()),
            Self::Stored(stored) => Some(stored.directory().as_fd()),
        }
    }

    /// What makes the root of a box of this image; `slot` is where its directory travels, if it has one.
    #[must_use]
    pub fn template_steps(&self, slot: Slot) -> Vec<Step> {
        match self {
            Self::Host(host) => host.steps(),
            Self::Directory(directory) => directory.steps(slot),
            Self::Stored(stored) => stored.directory().steps(slot),
            Self::Module(_) => Vec::new(),
        }
    }

    /// The trees that come from the image. Everything else in the box is made by us.
    #[must_use]
    pub fn trees(&self) -> Vec<Tree> {
        match self {
            Self::Host(host) => host.trees(),
            Self::Directory(directory) => directory.trees().to_vec(),
            Self::Stored(stored) => stored.directory().trees().to_vec(),
            Self::Module(_) => Vec::new(),
        }
    }

    /// The command that reads a program in this language from standard input, if the image has it.
    pub fn find_interpreter(&self, language: Language) -> Result<Vec<String>, ImageError> {
        interpreter::find(self, language)
    }
}

impl Tree {
    /// A tree at the top of the root, if the name is one that a path can have.
    pub(crate) fn named(name: &str, is_directory: bool) -> Option<Self> {
        let used_for = if name == "etc" { TreeUse::Settings } else { TreeUse::Programs };
        format!("/{name}").parse().ok().map(|at| Self { at, used_for, is_directory })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_called_host_and_sends_no_directory() {
        let image = Image::parse("host").unwrap();
        assert_eq!(image.label(), "host");
        assert!(image.dir().is_none());
    }

    #[test]
    fn an_empty_name_is_refused() {
        assert!(matches!(Image::parse(""), Err(ImageError::Empty)));
    }
}
