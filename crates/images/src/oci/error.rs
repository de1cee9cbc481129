//! Why an OCI image cannot be used.

use std::io;

use crate::tree::TreeError;

/// What is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum OciError {
    /// A document that is no such document.
    #[error("{what} cannot be read: {why}")]
    Document {
        /// Which one.
        what: String,
        /// Why not.
        why: String,
    },
    /// A document or a list that is longer than any honest one.
    #[error("{what} is too long: at most {most} are permitted")]
    TooLong {
        /// Which one.
        what: String,
        /// How many bytes or entries.
        most: u64,
    },
    /// Nothing for this platform.
    #[error("there is nothing for the platform {wanted}; there is: {known}")]
    Platform {
        /// Which one was wanted.
        wanted: String,
        /// Which ones there are.
        known: String,
    },
    /// More than one that would do.
    #[error("there are several images; choose one with --ref: {known}")]
    Ambiguous {
        /// Which ones.
        known: String,
    },
    /// A layer that is none.
    #[error("the layer {digest} is of the type {media:?}, which is no root file system")]
    NotALayer {
        /// Its digest.
        digest: String,
        /// Its type.
        media: String,
    },
    /// A blob that is not there, or cannot be read.
    #[error("cannot read the blob {digest}")]
    Blob {
        /// Its digest.
        digest: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Its content.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl OciError {
    /// A stable word for it.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Document { .. } => "image_bad_document",
            Self::TooLong { .. } => "image_too_large",
            Self::Platform { .. } => "image_no_platform",
            Self::Ambiguous { .. } => "image_ambiguous",
            Self::NotALayer { .. } => "image_not_a_layer",
            Self::Blob { .. } => "image_unreadable",
            Self::Tree(error) => error.code(),
        }
    }
}
