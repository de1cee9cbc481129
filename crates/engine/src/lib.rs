//! Starts, watches and ends boxes, and writes their receipts.
//!
//! - [`Engine`]: knows the host, chooses the tier, asks the warden. One line to the warden, one task per box.
//! - [`LiveBox`] and [`Exec`]: a box and a command in it, as their owner holds them.
//! - [`Files`]: the files of a box, through its agent.
//! - [`keeper`]: many boxes for many owners: admission, warm pools, deadlines, tapes of output, events, metrics.
//! - [`leases`]: secrets on the host's side: sources, leases, revocation.
//! - [`state`]: the whole lifecycle, one pure function.
//! - [`ledger`]: what was done, in an order that nobody can change unseen.
//! - [`store`]: what a daemon knows, where a `kill -9` cannot take it.
//! - [`outcome`]: from an ending to one word and one exit code, pure.
//! - [`receipt`]: everything that is known, on one page.
//!
//! Must not: hold a privilege, or believe what comes out of a box.

pub mod build;
mod copies;
mod deeds;
mod desk;
mod driver;
mod engine;
mod errands;
mod error;
pub mod failpoint;
mod files;
mod hear;
mod host_memory;
mod inbox;
pub mod keeper;
pub mod leases;
pub mod ledger;
mod link;
mod live;
mod met;
mod monitor;
mod outcome;
mod outlet;
mod paper;
mod patience;
mod shelf;
mod sleeper;
pub mod state;
pub mod store;
mod tenancy;
mod tools;
mod uplink;
mod volume;
mod workspace;

pub use desk::{Ended, Tally};
pub use engine::{BoxSpec, Engine, Snapshot, SnapshotError};
pub use error::{Blame, CreateError, EngineError, Over, PauseError, WorkspaceError, causes};
pub use files::{Download, FileError, Files, Listing, Slice, Summary, UnpackLimits, Upload, Watching};
pub use link::Supply;
pub use live::{Command, Exec, LiveBox, Stdin, USUAL_PATH};
pub use outcome::{DISMISSED, EXIT_REFUSED, Ending, Loss, Verdict, outcome, refused};
pub use outlet::{ExecEnd, ExecEvent, Stream};
pub use paper::{Account, Unasked, receipt, receipt_unasked};
pub use tools::{ToolAnswer, ToolCall};
pub use volume::VolumeDir;
pub use workspace::WorkspaceDir;
