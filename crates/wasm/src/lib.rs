//! One Wasm box: a worker process that runs guests compiled beforehand, and nothing else.
//!
//! It speaks the frames of the agent on descriptor 3, so the engine cannot tell it from one. A guest has no system call:
//! what it sees of files, clocks and streams is made here, in memory, behind caps. The worker itself is expected to be
//! taken over one day (Wasmtime has had holes): it lives in a jail of its own, has no compiler, and before the first
//! instruction of a guest it gives up opening files and making executable memory.
//!
//! ```text
//! run ─► arguments ─► shelf (load artefacts) ─► session (frames) ─► bench (threads, locked) ─► guests ─► wasi ─► files
//! ```
//!
//! Trust: arguments and frames come from the host and are believed within bounds; everything else is a guest's.

mod arguments;
mod bench;
mod budget;
mod chance;
mod clock;
#[cfg(feature = "components")]
mod component;
mod control;
mod desk;
mod ear;
#[cfg(any(test, feature = "compiler"))]
mod elf;
pub mod engine;
mod files;
mod guests;
#[cfg(feature = "compiler")]
pub mod image;
mod lock;
mod machine_code;
pub mod manifest;
pub mod offered;
pub mod pages;
mod ready;
pub mod seal;
mod session;
mod shelf;
mod streams;
mod tools;
mod voice;
mod wasi;
mod workspace;

pub use arguments::{Arguments, parse};
pub use shelf::{Placed, Whose};
pub use workspace::Workspace;

use crate::session::{End, Session};

/// Is the worker until there is nothing left to do. Returns the code to leave with: 0 after `Shutdown`, 3 when the host
/// has gone, 1 for all else.
#[must_use]
pub fn run(arguments: &Arguments) -> u8 {
    let Ok(control) = lock::harden(arguments.control) else { return 1 };
    match Session::open(control, arguments) {
        Ok(session) => match session.run() {
            End::Shutdown => 0,
            End::HostGone => 3,
            End::HostBroken(_) | End::Breach(_) | End::Failed(_) => 1,
        },
        Err(code) => code,
    }
}
