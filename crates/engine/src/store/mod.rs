//! What a daemon knows, where a `kill -9` cannot take it: boxes, commands, and the host resources that they stand on.
//!
//! - [`Store`]: one SQLite file in the state directory. Everything is written *before* it is made, so that a new daemon
//!   can release what a killed one left, by name alone.
//! - [`Leftovers`]: what a killed daemon left, and its release.
//!
//! What cannot be written is not begun: no new box. What makes the world smaller (the end of a box) happens all the same.
//! No secret is here: of a command its program and the number of its arguments, of a box what its card shows.

mod boxes;
mod error;
mod file;
mod journal;
mod leftovers;

pub use boxes::{BoxRow, BoxState, Deadlines, ExecRow};
pub use error::StoreError;
pub use file::Store;
pub use journal::{Resource, ResourceKind};
pub use leftovers::Leftovers;

#[cfg(test)]
mod tests;
