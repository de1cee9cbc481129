//! Pulling images from a registry (OCI distribution, version 1.1; also what Docker's registry speaks).
//!
//! - [`Reference`]: which image of which registry. There is no registry that is meant where none is named.
//! - [`line`]: one question to one host, bounded in time; redirects, which never carry a password to another host.
//! - [`auth`]: what a registry asks for before it answers.
//! - [`pull`]: manifests and layers, each held against its digest while it arrives, into the image store.

mod auth;
mod error;
mod line;
mod pull;
mod reference;
#[cfg(test)]
mod tests;

pub use auth::Login;
pub use error::RegistryError;
pub use pull::{Pull, PullProgress, pull};
pub use reference::{BadReference, Reference};
