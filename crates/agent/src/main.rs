//! blastbox-agent: the agent as a program of its own, for tiers whose kernel starts it as init.

use std::process::ExitCode;

fn main() -> ExitCode {
    match blastbox_agent::parse(std::env::args_os().skip(1)) {
        Some(arguments) => ExitCode::from(blastbox_agent::run(&arguments)),
        None => ExitCode::from(2),
    }
}
