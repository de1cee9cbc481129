//! blastbox-egress: the gateway of one box.
//!
//! Started by the engine with an empty environment; standard input is the control channel. It holds no privilege, and
//! ends with its box, with the warden and with the engine, whichever goes first.

use std::os::fd::AsFd as _;
use std::process::ExitCode;

use blastbox_egress::control;
use blastbox_sys::memory::Forgetful;

/// It holds secrets, and passes them through libraries that know nothing of that.
#[global_allocator]
static MEMORY: Forgetful = Forgetful;

fn main() -> ExitCode {
    // A bug must not leave half a gateway: the box has no network then.
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    // Started from a descriptor, it would be called by a number. Without a name it is still the same program.
    rustix::thread::set_name(c"blastbox-egress").ok();
    let ended = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|source| control::Trouble::Host { tried: "open the control channel", source });
    match ended.and_then(control::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            let text = format!("blastbox-egress: {trouble}\n");
            rustix::io::write(std::io::stderr().as_fd(), text.as_bytes()).ok();
            ExitCode::from(125)
        }
    }
}
