//! blastbox-wasm-compile: turns a module into machine code and puts it on a shelf, with its manifest beside it.
//!
//! Trust: the module is a stranger's. It is compiled by a second process of this program, which has limits, reads the module from
//! one stream, gives up everything but computing, and writes the code to another. The first process never looks into the
//! module: it hashes, and writes files.

mod alone;
mod effort;
mod making;
mod shelf;
mod translate;
mod trouble;
mod work;

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match work::carry_out(std::env::args_os().skip(1)) {
        Ok(said) => {
            // Whoever started us may have gone, and then hears nothing more.
            std::io::stdout().write_all(&said).ok();
            ExitCode::SUCCESS
        }
        Err(trouble) => {
            std::io::stderr().write_all(format!("{trouble}\n").as_bytes()).ok();
            ExitCode::from(trouble.code())
        }
    }
}
