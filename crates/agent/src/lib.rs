//! The hand inside a box: its first process, and the only one that speaks to the host.
//!
//! One static program, one event loop, one thread (a second one where the policy wants to hear of writes). It starts commands, carries their output, input and signals, waits
//! for whatever ends in the box, and reports the system calls that the box was refused. The host starts it confined:
//! it lives under the payload's own filter and may not make a call that the payload may not make.
//!
//! ```text
//! run ─► harden ─► session (the loop) ─┬─ control   frames to and from the host
//!                                       ├─ execs ─► exec ─► streams, find      commands
//!                                       ├─ sudo      commands that a program of the box asks for as its root
//!                                       ├─ files     file operations, as the payload's user
//!                                       ├─ reap      ended processes
//!                                       ├─ scratch   whether its scratch space is full
//!                                       ├─ asleep    stopped, copied, woken
//!                                       └─ denials   refused system calls, and with `writes` those that change files
//! ```
//!
//! Trust: what the host sends is bounded and believed; what commands write is passed on unread.
//!
//! Ends with 0 after `Shutdown`, 2 for a command line that is not ours, 3 when the host has gone, 1 for all else.

mod arguments;
mod asleep;
mod control;
mod denials;
mod exec;
mod execs;
mod failpoint;
mod files;
mod find;
mod harden;
mod input;
#[cfg(feature = "lies")]
mod lies;
mod nurse;
mod output;
mod reap;
mod scratch;
mod session;
mod streams;
mod sudo;
mod trust;
mod writes;

pub use arguments::{Arguments, NurseLine, parse};
pub use nurse::{ANSWER, ERRAND, Errand};
pub use trust::{believe, believe_another};
pub use writes::{Workplace, judge};

use crate::session::{End, Session};

/// Is the agent until there is nothing left to do. Returns the code to leave with.
#[must_use]
pub fn run(arguments: &Arguments) -> u8 {
    let Ok(house) = harden::harden(arguments) else { return 1 };
    #[cfg(feature = "lies")]
    if let Some(code) = lies::tell(&house.control) {
        return code;
    }
    let end = match Session::open(house) {
        Ok(session) => session.run(),
        Err(error) => End::Failed(error),
    };
    match end {
        End::Shutdown => 0,
        End::HostGone => 3,
        End::HostBroken(_) | End::Breach(_) | End::Failed(_) => 1,
    }
}
