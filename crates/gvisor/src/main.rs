//! blastbox-gvisor: the first process of a box whose kernel is gVisor's.
//!
//! The warden has put it into the box's jail: a user of its own, no capability, every namespace, Landlock, a filter. It
//! starts the two processes of `runsc` that make a kernel, and nothing else:
//!
//! ```text
//! blastbox-gvisor ─┬─ runsc gofer   opens the box's files, because the kernel itself may open none
//!                  └─ runsc boot    gVisor's kernel: its processes are the payload's ─► blastbox-agent, its init
//! ```
//!
//! `runsc run` would make these two by itself, but wants power for it: new namespaces, mounts, a root of its own. Here all
//! of that is there already, made by the warden, so neither has any. Both are told so (`--TESTONLY-unsafe-nonroot` means:
//! stay who and where you are), and both put gVisor's own filters on besides.
//!
//! The control channel passes through to the agent inside: once that runs, this program only waits. It is the first process
//! of its process namespace, so everything in the box ends with it.
//!
//! Trust: the command line is the plan's. What comes back from `runsc` before the box runs is bounded; after that nothing
//! is read.

mod arguments;
mod fault;
mod kernel;
mod spec;

use std::process::ExitCode;

use blastbox_sys::spawn::keep_only;

/// Where the warden puts the control channel, and where the agent inside finds it.
const CONTROL: i32 = 3;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    let Some(arguments) = arguments::parse(std::env::args_os().skip(1)) else { return ExitCode::from(2) };
    let Ok([control]) = keep_only([CONTROL]) else { return ExitCode::from(3) };
    match kernel::run(&arguments, &control) {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            fault.tell(&control);
            ExitCode::from(1)
        }
    }
}
