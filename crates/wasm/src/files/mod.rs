//! The files of one box: a tree in memory with a cap on bytes and on entries.
//!
//! Trust: names, sizes and contents are a guest's. There are no links of any kind, so no path leads anywhere but down.
//! Files that the worker shows (Python's library) are read-only and lie outside, behind an open descriptor.

mod contents;
mod places;
mod tree;

pub(crate) use places::LONGEST_PATH;
pub(crate) use tree::{Caps, Facts, Hold, Ino, Kind, ROOT, Tree, Trouble};
