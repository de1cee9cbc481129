//! The kernel boundary: which tier, and how much of the machine.

use crate::words::spoken;
use crate::{Bytes, Cpus, GuestName, ThreatLevel, TierChoice};

/// Which kernel boundary the box gets and how much processor, memory and processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelRules {
    /// The tier, or leave to choose it by threat level.
    pub tier: TierChoice,
    /// Processor time.
    pub cpus: Cpus,
    /// Memory of all processes of the box together.
    pub memory: Bytes,
    /// Processes and threads.
    pub pids: u32,
    /// What follows a system call that the filter denies.
    pub on_denied_syscall: OnDenied,
    /// Whether commands may run as root of the box.
    pub root: BoxRoot,
    /// Whether the box has a GPU of the host.
    pub gpu: Gpu,
    /// Whether the same program with the same input does the same to the last byte: clocks that count, chance from a fixed seed.
    pub deterministic: bool,
    /// The work that each command may do, counted by the engine that runs it and not by a clock.
    pub fuel: Option<u64>,
    /// The guest that a box of the tier `wasm` has alone, or else it has those of the shelf that are modules. Others do not ask.
    pub guest: Option<GuestName>,
    /// How gVisor runs the instructions of a box in the tier `gvisor`. Others do not ask.
    pub gvisor_platform: GvisorPlatform,
}

/// Whether commands may run as root of the box: uid 0 in its own user namespace, with power over the box's own users and
/// files and nothing else. Who may ask is everybody in the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum BoxRoot {
    /// Every command is the box's ordinary user.
    #[default]
    None,
    /// `sudo` works, without a password.
    Allowed,
}

spoken!(BoxRoot, "rule for root of the box", { None = "none", Allowed = "allowed" });

impl BoxRoot {
    /// Whether a policy of this level may have it.
    pub const fn allowed_at(&self, level: ThreatLevel) -> bool {
        match (self, level) {
            (Self::None, _) => true,
            (Self::Allowed, ThreatLevel::Low | ThreatLevel::Medium | ThreatLevel::High) => true,
            (Self::Allowed, ThreatLevel::Critical) => false,
        }
    }
}

/// Whether the box has a GPU of the host: its device files, and with them calls into the host's driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Gpu {
    /// None.
    #[default]
    None,
    /// The first one of the host, which others may use at the same time.
    One,
}

spoken!(Gpu, "rule for a GPU", { None = "none", One = "one" });

/// How gVisor gets hold of the payload's system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum GvisorPlatform {
    /// By traps: the fast way without hardware virtualisation.
    #[default]
    Systrap,
    /// By tracing every process: slow, and the way of gVisor's first years.
    Ptrace,
    /// In a virtual machine of its own, by the host's KVM.
    Kvm,
}

spoken!(GvisorPlatform, "platform of gVisor", { Systrap = "systrap", Ptrace = "ptrace", Kvm = "kvm" });

/// What follows a system call that the filter denies. It is denied either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum OnDenied {
    /// The call fails and is reported.
    #[default]
    Record,
    /// The box is killed.
    Kill,
}

spoken!(OnDenied, "answer to a denied system call", { Record = "record", Kill = "kill" });

impl KernelRules {
    /// The closed defaults of a level; the same at each, since the tier follows from the level.
    pub(crate) const fn at(_level: ThreatLevel) -> Self {
        Self {
            tier: TierChoice::ByThreat,
            cpus: Cpus::from_millis(1_000),
            memory: Bytes::mib(512),
            pids: 128,
            on_denied_syscall: OnDenied::Record,
            root: BoxRoot::None,
            gpu: Gpu::None,
            deterministic: false,
            fuel: None,
            guest: None,
            gvisor_platform: GvisorPlatform::Systrap,
        }
    }
}
