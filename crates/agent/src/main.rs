//! The hand inside a box: its first process, and the only one that speaks to the host.
//!
//! One static program, one thread, one event loop. It starts commands, carries their output, input and signals, waits
//! for whatever ends in the box, and reports the system calls that the box was refused. The host starts it confined:
//! it lives under the payload's own filter and may not make a call that the payload may not make.
//!
//! ```text
//! main ─► harden ─► session (the loop) ─┬─ control   frames to and from the host
//!                                       ├─ execs ─► exec ─► streams, find      commands
//!                                       ├─ reap      ended processes
//!                                       └─ denials   refused system calls
//! ```
//!
//! Trust: what the host sends is bounded and believed; what commands write is passed on unread.
//!
//! Ends with 0 after `Shutdown`, 2 for a command line that is not ours, 3 when the host has gone, 1 for all else.

mod arguments;
mod control;
mod denials;
mod exec;
mod execs;
mod find;
mod harden;
mod input;
mod output;
mod reap;
mod refresh;
mod session;
mod streams;

use std::process::ExitCode;

use crate::session::{End, Session};

fn main() -> ExitCode {
    let Some(arguments) = arguments::parse(std::env::args_os().skip(1)) else { return ExitCode::from(2) };
    let Ok(house) = harden::harden(&arguments) else { return ExitCode::FAILURE };
    let end = match Session::open(house) {
        Ok(session) => session.run(),
        Err(error) => End::Failed(error),
    };
    match end {
        End::Shutdown => ExitCode::SUCCESS,
        End::HostGone => ExitCode::from(3),
        End::HostBroken(_) | End::Breach(_) | End::Failed(_) => ExitCode::FAILURE,
    }
}
