//! How often a box has met each of the limits that it outlives.
//!
//! What the kernel counted comes from the warden; that its scratch space is full is a claim of the guest, as is what the kernel of a
//! virtual machine counted. It can lie about nobody but itself.

use blastbox_wire::receipt::LimitName;
use blastbox_wire::warden::Spent;

/// How often, as far as somebody has looked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Met {
    pub(crate) memory: u64,
    pub(crate) pids: u64,
    pub(crate) disk: u64,
    pub(crate) inodes: u64,
}

impl Met {
    /// Takes in what the kernel has counted so far.
    pub(crate) fn counted(&mut self, spent: &Spent) {
        self.memory = self.memory.max(spent.oom_kills);
        self.pids = self.pids.max(spent.pids_refused);
    }

    /// The scratch space has become full, of bytes or files; memory or processes have run out in a machine.
    pub(crate) fn filled(&mut self, [bytes, inodes, memory, pids]: [bool; 4]) {
        self.disk = self.disk.saturating_add(u64::from(bytes));
        self.inodes = self.inodes.saturating_add(u64::from(inodes));
        self.memory = self.memory.saturating_add(u64::from(memory));
        self.pids = self.pids.saturating_add(u64::from(pids));
    }

    /// Those that it has met.
    pub(crate) fn names(self) -> impl Iterator<Item = LimitName> {
        self.each().into_iter().filter(|(_, count)| *count > 0).map(|(limit, _)| limit)
    }

    /// Each of them.
    pub(crate) fn each(self) -> [(LimitName, u64); 4] {
        let Self { memory, pids, disk, inodes } = self;
        [
            (LimitName::Memory, memory),
            (LimitName::Pids, pids),
            (LimitName::Disk, disk),
            (LimitName::Inodes, inodes),
        ]
    }
}
