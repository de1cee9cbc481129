//! Root filesystems: a read-only view of the host's programs, or a directory that holds a whole system.
//!
//! Opening an [`Image`] looks at the disk once; after that everything it says is a pure function of what was found, so
//! that a tier can lower a policy without I/O.

mod directory;
mod error;
mod host;
mod image;
mod interpreter;
mod skeleton;

pub use directory::DirectoryImage;
pub use error::ImageError;
pub use host::HostImage;
pub use image::{Image, Tree, TreeUse};
pub use interpreter::{Language, UnknownLanguage};
