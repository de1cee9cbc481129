//! blastbox-agent: the agent as a program of its own, for tiers whose kernel starts it as init.

mod guest;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1).peekable();
    if words.next_if(|word| word == guest::GUEST).is_some() {
        return ExitCode::from(guest::run(words));
    }
    match blastbox_agent::parse(words) {
        Some(arguments) => ExitCode::from(blastbox_agent::run(&arguments)),
        None => ExitCode::from(2),
    }
}
