//! `blastbox tether`: becomes another program that ends when whoever started it does, however that ends.
//!
//! For `blastbox escape`, whose controls are plain processes. The kernel sends the signal; it stays asked for when this
//! process becomes the program.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::Args;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::problem::Problem;

#[derive(Debug, Args)]
pub(crate) struct TetherArgs {
    /// The process id of whoever starts this
    #[arg(long, value_name = "PID")]
    parent: u32,
    /// Be asked to end (TERM) instead of being ended (KILL)
    #[arg(long)]
    gently: bool,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "it starts nothing: it becomes what its caller could have started"
)]
pub(crate) fn tether(args: TetherArgs) -> Result<u8, Problem> {
    let TetherArgs { parent, gently, command } = args;
    let signal = if gently { Signal::TERM } else { Signal::KILL };
    let mut words = command.into_iter();
    let program = words.next().ok_or(Problem::NoCommand { usual: None })?;
    let failed = |source| Problem::Tether { program: program.clone().into(), source };
    set_parent_process_death_signal(Some(signal)).map_err(|error| failed(error.into()))?;
    // Whoever ended before that sends nothing any more.
    let now = getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    if now != Some(parent) {
        return Err(Problem::Untethered { parent });
    }
    Err(failed(Command::new(&program).args(words).exec()))
}
