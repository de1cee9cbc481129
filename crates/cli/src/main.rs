//! `blastbox`: what is started for every run.

use std::process::ExitCode;

fn main() -> ExitCode {
    blastbox_cli::front()
}
