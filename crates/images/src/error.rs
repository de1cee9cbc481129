//! What can be wrong with an image.

use std::io;
use std::path::PathBuf;

use crate::Language;

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The text names nothing.
    #[error("an image is `host`, a name in the image store, or a directory, not an empty text")]
    Empty,
    /// It cannot be opened.
    #[error("cannot open the image directory {path}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("the image {path} is not a directory; unpack it into one first")]
    NotADirectory {
        /// What was named.
        path: PathBuf,
    },
    /// It is the whole host.
    #[error("the image {path} is the root of this host; use `host` for a read-only view of its programs")]
    HostRoot {
        /// What was named.
        path: PathBuf,
    },
    /// It cannot be listed.
    #[error("cannot list the image directory {path}")]
    List {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It has nothing in it that a program could come from.
    #[error("the image {path} holds no root file system: it has neither bin nor usr at its top")]
    NoSystem {
        /// The directory.
        path: PathBuf,
    },
    /// More at its top than a root file system has.
    #[error("the image {path} has {count} directories and files at its top; at most {most} can be shown")]
    TooManyTrees {
        /// The directory.
        path: PathBuf,
        /// How many it has.
        count: usize,
        /// How many it may have.
        most: usize,
    },
    /// The store has no such image, or it cannot be used.
    #[error(transparent)]
    Store(Box<crate::StoreError>),
    /// No program that runs this language.
    #[error(
        "the image {image} has no {language}: looked for {looked_for}; install {install} in it, or use another image"
    )]
    NoInterpreter {
        /// The image's label.
        image: String,
        /// What was asked for.
        language: Language,
        /// The programs that would do, and where.
        looked_for: String,
        /// The package to install.
        install: &'static str,
    },
}
