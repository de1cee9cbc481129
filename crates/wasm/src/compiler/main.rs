//! blastbox-wasm-compile: turns a module into machine code and writes its manifest beside it.
//!
//! Trust: the module is a stranger's. This program is started with limits, in a process of its own, and never in a
//! worker: a worker has no compiler. It opens what it is told to read, writes two files, and gives up the rest.

mod work;

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match work::carry_out(std::env::args_os().skip(1)) {
        Ok(said) => {
            // Whoever started us may have gone.
            std::io::stdout().write_all(said.as_bytes()).ok();
            ExitCode::SUCCESS
        }
        Err(trouble) => {
            std::io::stderr().write_all(format!("{trouble}\n").as_bytes()).ok();
            ExitCode::from(trouble.code())
        }
    }
}
