//! Images in the form of the Open Container Initiative.
//!
//! - [`oci_text`]: its documents, bounded. Trust: whoever made the image.
//! - [`assemble`]: from a manifest to a tree, every byte held against its digest.
//! - [`layout`]: the form as a directory.
//! - [`saved`]: what `docker save` and `podman save` write, made a layout.

mod assemble;
mod error;
mod layout;
pub mod oci_text;
mod platform;
pub(crate) mod saved;
mod verified;

pub use assemble::{Assembled, Blobs, assemble, choose};
pub use error::OciError;
pub use layout::Layout;
pub use platform::Platform;
pub use verified::Verified;
