//! blastbox-warden: the only privileged program.
//!
//! Single-threaded, no async, no HTTP, no JSON. Standard input is a sequenced socket on which one caller asks for
//! boxes ([`blastbox_wire::warden`]); every plan is checked again before anything is done. When the caller goes, the
//! warden ends every box and leaves nothing behind; when the warden is killed, its boxes die with it, and any later
//! warden releases their groups by name.
//!
//! Read on in this order: `serve` (the loop), `launch` (the parent's half of a new box), `apply` (the child's half, the
//! table of contents of the jail), `template` and `places` (mounts).

#![cfg_attr(not(test), no_main)]

mod apply;
mod boxes;
mod devices;
mod embryos;
mod forerunner;
mod gathered;
mod given;
mod groups;
mod ids;
mod launch;
mod lifted;
mod monitor;
mod networks;
mod places;
mod serve;
mod standing;
mod template;
#[cfg(feature = "test-build")]
mod test_build;
mod trouble;

use std::ffi::OsStr;
use std::os::fd::AsFd;

use blastbox_sys::cgroup::Room;
use blastbox_sys::first::ONE;
use blastbox_sys::fork::leave;
use forerunner::Forerunner;
use trouble::Trouble;

blastbox_sys::program!(warden);

fn warden() -> u8 {
    // A bug must not leave half a warden: abort, and let the boxes die with it.
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    #[cfg(feature = "test-build")]
    test_build::confess();
    let Err(trouble) = run() else { leave(0) };
    // Nobody to answer to yet, or no longer: the exit code and this line are all there is.
    let text = format!("blastbox-warden: {trouble}\n");
    rustix::io::write(std::io::stderr().as_fd(), text.as_bytes()).ok();
    leave(125)
}

fn run() -> Result<(), Trouble> {
    let (name, forerunner) = match std::env::args_os().nth(1) {
        None => (None, Forerunner::None),
        Some(word) if word == ONE => (None, Forerunner::Wanted),
        Some(word) => (chosen_name(&word)?, Forerunner::None),
    };
    let room = if forerunner.is_wanted() { Room::One } else { Room::Many };
    serve::serve(standing::Standing::take(name, room)?, forerunner)
}

/// The name that the caller has chosen and written down: a number, so that it can never be a path.
fn chosen_name(text: &OsStr) -> Result<Option<u64>, Trouble> {
    let digits = text.to_str().filter(|text| text.len() == 16 && !text.starts_with('+'));
    match digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()) {
        Some(name) => Ok(Some(name)),
        None => Err(Trouble::plain("read the name that the caller has chosen")),
    }
}
