//! Images by digest, in one private directory.
//!
//! ```text
//! STORE/blastbox-images   says that this is a store; nothing else is ever taken for one
//! STORE/lock              held while something is added or taken away
//! STORE/trees/sha256-…/   a root file system; never changed after it was put there
//! STORE/facts/sha256-….json
//! STORE/names/NAME        the digest that a name means
//! STORE/drafts/…/         a tree in the making; swept where nobody holds its lock
//! STORE/blobs/sha256-…    what was downloaded, checked; taken away by `prune`
//! ```
//! A tree that a box uses is held by a shared lock on its directory, so that nothing takes it away.

mod blobs;
mod draft;
mod error;
mod facts;
mod import;
mod inner;
mod layers;
mod name;
mod place;
mod stored;
mod sweep;
#[cfg(test)]
mod tests;

pub use blobs::{BlobDraft, Blobs};
pub use draft::{Draft, Kept};
pub use error::StoreError;
pub use facts::{Facts, ImageConfig, Source, short};
pub use import::{Import, Progress, Stream};
pub use layers::{Derived, layer_key};
pub use name::{BadName, BadRef, ImageName, ImageRef};
pub use place::Store;
pub(crate) use place::word;
pub use stored::{Hold, StoredImage};
pub use sweep::{Listed, Needs, Pruned};
