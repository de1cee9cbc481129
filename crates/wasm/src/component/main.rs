//! blastbox-wasm-component: the worker of one Wasm box whose guest is a component, started by the warden inside that box.

use std::process::ExitCode;

fn main() -> ExitCode {
    match blastbox_wasm::parse(std::env::args_os().skip(1)) {
        Some(arguments) => ExitCode::from(blastbox_wasm::run(&arguments)),
        None => ExitCode::from(2),
    }
}
