//! `blastbox-full`: every verb of `blastbox`.

use std::process::ExitCode;

fn main() -> ExitCode {
    blastbox_cli::full().into()
}
