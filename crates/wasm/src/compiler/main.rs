//! blastbox-wasm-compile: turns a module into machine code and writes its manifest beside it.
//!
//! Trust: the module is a stranger's. This is a process of its own with limits, never a worker: a worker has no compiler.
//! When it has read the module it gives up everything but the directory that it writes two files into.

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
