//! `blastbox-full`: every verb of `blastbox`.

use std::process::ExitCode;

/// It fetches secrets, and passes them through libraries that know nothing of that.
#[global_allocator]
static MEMORY: blastbox_isolation::ForgetfulInTime = blastbox_isolation::ForgetfulInTime;

fn main() -> ExitCode {
    blastbox_cli::full().into()
}
