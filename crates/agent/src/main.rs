//! blastbox-agent: the agent as a program of its own, for tiers whose kernel starts it as init; and, called `sudo`, the
//! program in a box that asks its agent.

mod asker;
mod guest;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    if asker::is_called(words.next().as_deref()) {
        return ExitCode::from(asker::run(words.collect()));
    }
    let mut words = words.peekable();
    if words.next_if(|word| word == guest::GUEST).is_some() {
        return ExitCode::from(guest::run(words));
    }
    match blastbox_agent::parse(words) {
        Some(arguments) => ExitCode::from(blastbox_agent::run(&arguments)),
        None => ExitCode::from(2),
    }
}
