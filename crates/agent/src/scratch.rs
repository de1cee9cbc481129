//! Whether the box's scratch space is full; in a guest also what its kernel has counted.
//!
//! All of it is one file system, whatever its places are called, and one of them is in every box. The kernel counts no write that
//! it refused there, so what is told is what a look finds: after each command, and when the host asks for a sign of life.

use blastbox_wire::agent::AgentFrame;
use rustix::fs::statfs;

use crate::control::Control;
use crate::nurse::Nurse;

/// A place that is in the scratch space of every box.
const PLACE: &str = "/tmp";

/// What the last look found, and what was ever told.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    bytes: bool,
    inodes: bool,
    told: (bool, bool),
}

impl Scratch {
    /// Tells the host what has become full, and what a guest's kernel has counted, since the last look.
    pub(crate) fn look(&mut self, control: &mut Control, nurse: Option<&Nurse>) {
        let Ok(now) = statfs(PLACE) else { return };
        // A file system that counts none of either has no end of them.
        let (bytes, inodes) = (now.f_blocks > 0 && now.f_bavail == 0, now.f_files > 0 && now.f_ffree == 0);
        let [memory, pids] = nurse.map(Nurse::count).unwrap_or_default();
        let met = [bytes && !self.bytes, inodes && !self.inodes, memory, pids];
        *self = Self { bytes, inodes, told: (self.told.0 || bytes, self.told.1 || inodes) };
        if met.contains(&true) {
            control.send(&AgentFrame::Full { met });
        }
    }

    /// Tells a host that came after another what that one knew, once. Not what a guest's kernel has counted: it goes on as another box,
    /// or from disk, and what it met before is on that receipt.
    pub(crate) fn repeat(&self, control: &mut Control) {
        let (bytes, inodes) = self.told;
        if bytes || inodes {
            control.send(&AgentFrame::Full { met: [bytes, inodes, false, false] });
        }
    }
}
