//! The payload's user, put on for the length of some file work, so that the agent never opens what the payload could not.
//!
//! Where the agent and the payload are one user there is nothing to put on. A change of the file user makes the kernel
//! forget two things that the launcher and `harden` have set: that this process dies with its parent, and that nobody
//! may look into it. Both are said again at once, each time.

use std::io;

use blastbox_sys::guise::open_files_as;
use blastbox_sys::spawn::Identity;
use rustix::process::{DumpableBehavior, Signal};

/// Who to be for files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guise {
    payload: Option<Identity>,
    dies_with_parent: Option<Signal>,
}

/// The guise is on. To be taken off by name: forgetting it would leave the agent's own files out of its reach.
#[derive(Debug)]
#[must_use]
pub(crate) struct Worn(Guise);

impl Guise {
    pub(crate) fn new(payload: Option<Identity>) -> Self {
        let dies_with_parent = rustix::process::parent_process_death_signal().ok().flatten();
        Self { payload, dies_with_parent }
    }

    /// Becomes the payload, for files.
    pub(crate) fn put_on(self) -> io::Result<Worn> {
        if let Some(Identity { uid, gid, .. }) = self.payload {
            if let Err(refused) = open_files_as(uid, gid) {
                Worn(self).take_off()?;
                return Err(refused);
            }
            self.say_again()?;
        }
        Ok(Worn(self))
    }

    fn say_again(self) -> io::Result<()> {
        if self.dies_with_parent.is_some() {
            rustix::process::set_parent_process_death_signal(self.dies_with_parent)?;
        }
        Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
    }
}

impl Worn {
    /// Whether it is this one.
    pub(crate) fn is(&self, guise: Guise) -> bool {
        self.0 == guise
    }

    /// Becomes the agent again. An error is the agent's end.
    pub(crate) fn take_off(self) -> io::Result<()> {
        let Self(guise) = self;
        if guise.payload.is_some() {
            open_files_as(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())?;
            guise.say_again()?;
        }
        Ok(())
    }
}
