//! An image, opened.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use blastbox_wire::plan::{GuestPath, Slot, Step};

use crate::{DirectoryImage, HostImage, ImageError, Language, interpreter};

/// Where the root file system of a box comes from.
#[derive(Debug)]
pub enum Image {
    /// A read-only view of the host's programs with an /etc of our own.
    Host(HostImage),
    /// A directory that holds a whole root file system, shown read-only.
    Directory(DirectoryImage),
}

/// One tree at the top of the root that comes from the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Where it lies in the box.
    pub at: GuestPath,
    /// What it is for.
    pub used_for: TreeUse,
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

    /// The view of this host.
    #[must_use]
    pub fn host() -> Self {
        Self::Host(HostImage::look())
    }

    /// The image's name in receipts: `host`, or `dir:` and the path.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Self::Host(_) => "host".to_owned(),
            Self::Directory(directory) => format!("dir:{}", directory.path().display()),
        }
    }

    /// The directory that must travel with a plan of this image, if it needs one.
    #[must_use]
    pub fn dir(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Host(_) => None,
            Self::Directory(directory) => Some(directory.as_fd()),
        }
    }

    /// What makes the root of a box of this image; `slot` is where its directory travels, if it has one.
    #[must_use]
    pub fn template_steps(&self, slot: Slot) -> Vec<Step> {
        match self {
            Self::Host(host) => host.steps(),
            Self::Directory(directory) => directory.steps(slot),
        }
    }

    /// The trees that come from the image. Everything else in the box is made by us.
    #[must_use]
    pub fn trees(&self) -> Vec<Tree> {
        match self {
            Self::Host(host) => host.trees(),
            Self::Directory(directory) => directory.trees().to_vec(),
        }
    }

    /// The command that reads a program in this language from standard input, if the image has it.
    pub fn find_interpreter(&self, language: Language) -> Result<Vec<String>, ImageError> {
        interpreter::find(self, language)
    }
}

impl Tree {
    /// A tree at the top of the root, if the name is one that a path can have.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let used_for = if name == "etc" { TreeUse::Settings } else { TreeUse::Programs };
        format!("/{name}").parse().ok().map(|at| Self { at, used_for })
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
