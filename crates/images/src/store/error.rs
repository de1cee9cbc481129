//! Why the store did not do what it was asked for.

use std::io;
use std::path::PathBuf;

use blastbox_wire::event::Hash;

use super::name::{BadRef, ImageName, ImageRef};
use super::place::MARKER;
use crate::ImageError;
use crate::oci::OciError;
use crate::tree::TreeError;

/// What went wrong, or was refused.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store itself.
    #[error("cannot {tried} the image store {path}")]
    Place {
        /// What was tried.
        tried: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The store is not ours.
    #[error(
        "the image store {path} belongs to somebody else, or others can write to it; images that others can change are \
         not used"
    )]
    NotOurs {
        /// Where.
        path: PathBuf,
    },
    /// The directory holds something else.
    #[error(
        "{path} is not empty and no image store: there is no file {} in it; name an empty directory, or one that does \
         not exist",
        MARKER
    )]
    NotAStore {
        /// Where.
        path: PathBuf,
    },
    /// There is no such image.
    #[error("there is no image {wanted}; {}", known_words(.known))]
    Unknown {
        /// What was asked for.
        wanted: String,
        /// The names that there are.
        known: Vec<ImageName>,
    },
    /// The name means another content.
    #[error("the image {name} has the digest {found}, and {wanted} was asked for")]
    OtherDigest {
        /// The name.
        name: ImageName,
        /// What it means.
        found: Hash,
        /// What it was to mean.
        wanted: Hash,
    },
    /// Several images have the same files.
    #[error(
        "several images with different variables have the files {digest}: use one of their names, which \
         `blastbox image ls` prints"
    )]
    Ambiguous {
        /// The files.
        digest: Hash,
    },
    /// A box runs on it.
    #[error("the image {image} is in use by a box")]
    InUse {
        /// Which one.
        image: ImageRef,
    },
    /// Boxes that do not run now go on with it.
    #[error("the image {image} is needed by boxes that are paused to disk: {}", boxes.join(", "))]
    Needed {
        /// Which one.
        image: ImageRef,
        /// Who needs it.
        boxes: Vec<String>,
    },
    /// The tree is not what its name says.
    #[error("the image {image} was changed: its tree has the digest {found}")]
    Changed {
        /// Which one.
        image: ImageRef,
        /// What it has.
        found: Hash,
    },
    /// What was said is no reference.
    #[error(transparent)]
    BadRef(#[from] BadRef),
    /// What it should be made from.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// What it should be made from.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// The tree cannot be shown.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// What was made of the source is nothing that a box could be shown.
    #[error("this cannot be an image: {why}")]
    NotAnImage {
        /// Why not.
        why: &'static str,
    },
    /// A source that cannot be opened.
    #[error("cannot read {path}, which should be imported")]
    Unread {
        /// What was named.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A source that is neither of the known forms.
    #[error("{path} cannot be imported: {why}")]
    Source {
        /// What was named.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

impl StoreError {
    /// A stable word for it.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Place { source, .. } if source.kind() == io::ErrorKind::StorageFull => "image_disk_full",
            Self::Place { .. } | Self::NotOurs { .. } => "image_store_failed",
            Self::NotAStore { .. } => "image_no_store",
            Self::Unknown { .. } => "image_unknown",
            Self::OtherDigest { .. } | Self::Changed { .. } => "image_digest_mismatch",
            Self::Ambiguous { .. } => "image_ambiguous",
            Self::InUse { .. } | Self::Needed { .. } => "image_in_use",
            Self::BadRef(_) => "image_name",
            Self::Tree(TreeError::Write { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
                "image_disk_full"
            }
            Self::Tree(error) => error.code(),
            Self::Oci(error) => error.code(),
            Self::Image(_) | Self::Unread { .. } | Self::Source { .. } | Self::NotAnImage { .. } => {
                "image_unusable"
            }
        }
    }
}

fn known_words(known: &[ImageName]) -> String {
    if known.is_empty() {
        return "the store is empty: see `blastbox image --help`, or use `host`".to_owned();
    }
    let names: Vec<&str> = known.iter().map(ImageName::as_str).take(20).collect();
    let more = known.len().saturating_sub(names.len());
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("known are: host, {}{rest}", names.join(", "))
}
