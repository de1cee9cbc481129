//! A root file system that is being made, beneath one directory.
//!
//! - [`TreeWriter`]: the only hand that makes files, directories and links there, whatever an archive or a recipe says.
//! - [`unpack`]: archives, as layers of an image or alone.
//! - [`copy`]: directories of this host.
//! - [`digest`]: the name of a finished tree.

pub(crate) mod beneath;
pub(crate) mod copy;
pub(crate) mod digest;
mod error;
pub(crate) mod share;
mod unpack;
mod whiteout;
mod writer;

pub use error::TreeError;
pub(crate) use unpack::unpack_at;
pub use unpack::{Form, Packed, unpack};
pub(crate) use writer::finish;
pub use writer::{Caps, Made, Shared, TreeWriter};
