//! What the worker gives up: at its start what it never needs, and before a guest runs what only loading needed.

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use blastbox_sys::seccomp::Filter;
use blastbox_sys::spawn::keep_only;
use rustix::process::DumpableBehavior;

/// Takes over the stream to the host and closes everything else.
pub(crate) fn harden(control: RawFd) -> io::Result<OwnedFd> {
    rustix::thread::set_name(c"blastbox-wasm")?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    std::panic::set_hook(Box::new(|_| std::process::abort()));
    rustix::thread::set_no_new_privs(true)?;
    let [control] = keep_only([control])?;
    rustix::io::ioctl_fionbio(&control, true)?;
    Ok(control)
}

/// No file is opened, nothing is executed and no memory becomes executable on this thread from now on.
pub(crate) fn lock() -> io::Result<()> {
    Filter::for_wasm_locked().install().map(|_| ())
}
