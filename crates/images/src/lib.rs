//! Root filesystems: a read-only view of the host's programs, a directory that holds a whole system, or an image of the
//! [`store`]; and what a box without one has instead, a compiled program.
//!
//! Opening an [`Image`] looks at the disk once; after that everything it says is a pure function of what was found, so
//! that a tier can lower a policy without I/O.

mod directory;
mod error;
mod host;
mod image;
mod interpreter;
pub mod machine;
mod module;
pub mod oci;
pub mod recipe;
mod skeleton;
pub mod store;
#[cfg(test)]
mod testing;
pub mod tree;

pub use directory::DirectoryImage;
pub use error::ImageError;
pub use host::HostImage;
pub use image::{Image, Tree, TreeUse};
pub use interpreter::{Language, UnknownLanguage};
pub use module::{Form, ModuleImage};
pub use skeleton::OURS;
pub use store::{Hold, ImageConfig, ImageName, ImageRef, Store, StoreError, StoredImage};
