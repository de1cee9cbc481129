//! What a tier or a host cannot enforce, by name. A gap that the policy does not accept is a refusal.

use crate::words::spoken;
use crate::{Boundary, ThreatLevel};

/// A named weakness of a box on this host. Closed and append-only: docs, alerts and SDKs key on [`Gap::code`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gap {
    /// The jail runs on the host kernel.
    SharedKernel,
    /// The host's `/usr` is visible read-only.
    HostImage,
    /// Without root, agent and payload have one uid, the caller's.
    SharedUid,
    /// No memory cgroup: only a limit per process.
    NoMemoryLimit,
    /// No processor quota.
    NoCpuLimit,
    /// No pids cgroup: only `RLIMIT_NPROC`.
    NoPidsLimit,
    /// Landlock is absent or older than wanted.
    WeakLandlock,
    /// Denied system calls cannot be reported.
    SilentDenials,
    /// The microVM's processor is emulated in software.
    EmulatedCpu,
    /// The host's GPU driver is reachable from the box.
    GpuDriverSurface,
    /// Swap is not counted against the memory limit.
    SwapUnlimited,
    /// Workspace files keep their host owners: idmapped mounts are missing.
    OwnerMapMissing,
    /// How much lies in a volume is looked at now and then, and not held by the kernel: a box that hides what it writes has more.
    VolumeSize,
}

spoken!(Gap, "gap", {
    SharedKernel = "shared-kernel",
    HostImage = "host-image",
    SharedUid = "shared-uid",
    NoMemoryLimit = "no-memory-limit",
    NoCpuLimit = "no-cpu-limit",
    NoPidsLimit = "no-pids-limit",
    WeakLandlock = "weak-landlock",
    SilentDenials = "silent-denials",
    EmulatedCpu = "emulated-cpu",
    GpuDriverSurface = "gpu-driver-surface",
    SwapUnlimited = "swap-unlimited",
    OwnerMapMissing = "no-owner-map",
    VolumeSize = "volume-size",
});

impl Gap {
    /// The stable code, as in `--accept shared-kernel`.
    pub const fn code(&self) -> &'static str {
        self.as_str()
    }

    /// The boundary that is weaker for it.
    pub const fn boundary(&self) -> Boundary {
        match self {
            Self::SharedKernel
            | Self::SharedUid
            | Self::NoMemoryLimit
            | Self::NoCpuLimit
            | Self::NoPidsLimit
            | Self::SilentDenials
            | Self::EmulatedCpu
            | Self::GpuDriverSurface
            | Self::SwapUnlimited => Boundary::Kernel,
            Self::HostImage | Self::WeakLandlock | Self::OwnerMapMissing | Self::VolumeSize => {
                Boundary::Files
            }
        }
    }

    /// One sentence: what is weaker.
    pub const fn explain(&self) -> &'static str {
        match self {
            Self::SharedKernel => {
                "The box runs on the host's own kernel, or on nothing that is a boundary to it, so one kernel bug \
                 that its allowed system calls reach is an escape."
            }
            Self::HostImage => {
                "The box sees the host's /usr read-only, so it learns which software and versions the host has."
            }
            Self::SharedUid => {
                "Without root the agent, the payload and the caller have the same user id, so only the namespaces \
                 and the system call filter keep the payload from the others."
            }
            Self::NoMemoryLimit => {
                "There is no memory cgroup: the limit holds for each process, not for all of them together."
            }
            Self::NoCpuLimit => {
                "There is no processor quota: the box can keep every core that it may run on busy."
            }
            Self::NoPidsLimit => {
                "Processes and threads of this box alone are not counted: there is no pids cgroup (RLIMIT_NPROC counts per \
                 user id), or the box's own kernel does not count them."
            }
            Self::WeakLandlock => {
                "Landlock is absent or older than wanted, so what the mounts show \
                 is not checked a second time by the kernel."
            }
            Self::SilentDenials => {
                "Denied system calls fail as they should, but cannot be reported, \
                 so an attack leaves no trace in the ledger."
            }
            Self::EmulatedCpu => {
                "The machine's processor is emulated in software, which nobody maintains as a security boundary."
            }
            Self::GpuDriverSurface => {
                "The host's GPU driver takes calls from the box, so a bug in that driver is an escape."
            }
            Self::SwapUnlimited => {
                "Swap is not counted, so the box can push more than its memory limit into the host's swap."
            }
            Self::OwnerMapMissing => {
                "Files of the workspace keep their host owners, \
                 so the box may be unable to read them or see who owns them."
            }
            Self::VolumeSize => {
                "A volume is a directory on the host's disk whose size is looked at every few seconds: a box that means harm hides \
                 what it writes (files without a name, files that move about) and passes its limit until 512 MiB of that \
                 disk are left, which ends all boxes with volumes, also those of other tenants."
            }
        }
    }

    /// What closes the gap: an instruction without a full stop.
    pub const fn fix(&self) -> &'static str {
        match self {
            Self::SharedKernel => {
                "use a tier with a kernel of its own, such as --tier gvisor --accept silent-denials --accept no-pids-limit"
            }
            Self::HostImage => "use a root file system of your own (--image DIR) instead of the host's",
            Self::SharedUid => "run blastbox as root, so that each box gets user ids of its own",
            Self::NoMemoryLimit => {
                "delegate the memory cgroup controller to blastbox (systemd: Delegate=yes), or run it as root"
            }
            Self::NoCpuLimit => {
                "delegate the cpu cgroup controller to blastbox (systemd: Delegate=yes), or run it as root"
            }
            Self::NoPidsLimit => {
                "delegate the pids cgroup controller to blastbox (systemd: Delegate=yes), or run it as root; on gVisor nothing closes it"
            }
            Self::WeakLandlock => "boot a newer kernel with landlock in the lsm= list",
            Self::SilentDenials => {
                "use the jail on a kernel with seccomp user notification (5.0 or newer), or the microVM: gVisor reports none"
            }
            Self::EmulatedCpu => {
                "make /dev/kvm usable for blastbox (hardware or nested virtualisation; `blastbox doctor` says what it lacks)"
            }
            Self::GpuDriverSurface => "run the box without a GPU",
            Self::SwapUnlimited => {
                "turn on swap accounting (swapaccount=1 with cgroup v1), or turn swap off on the host"
            }
            Self::VolumeSize => {
                "run the box without volumes; the state directory on a file system of its own keeps the harm from the rest of the host"
            }
            Self::OwnerMapMissing => {
                "run blastbox as root on Linux 5.12 or newer with a file system that supports idmapped mounts"
            }
        }
    }

    /// Whether a policy of this level may accept the gap. At `critical` nothing may stand in for a kernel of
    /// the box's own on real hardware, nor may the host be seen.
    pub const fn acceptable_at(&self, level: ThreatLevel) -> bool {
        match level {
            ThreatLevel::Low | ThreatLevel::Medium | ThreatLevel::High => true,
            ThreatLevel::Critical => match self {
                Self::SharedKernel | Self::HostImage | Self::EmulatedCpu | Self::VolumeSize => false,
                Self::SharedUid
                | Self::NoMemoryLimit
                | Self::NoCpuLimit
                | Self::NoPidsLimit
                | Self::WeakLandlock
                | Self::SilentDenials
                | Self::GpuDriverSurface
                | Self::SwapUnlimited
                | Self::OwnerMapMissing => true,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_append_only() {
        let codes: Vec<&str> = Gap::ALL.iter().map(Gap::code).collect();
        assert_eq!(
            codes,
            [
                "shared-kernel",
                "host-image",
                "shared-uid",
                "no-memory-limit",
                "no-cpu-limit",
                "no-pids-limit",
                "weak-landlock",
                "silent-denials",
                "emulated-cpu",
                "gpu-driver-surface",
                "swap-unlimited",
                "no-owner-map",
                "volume-size",
            ],
            "a code may be added at the end; a published one never changes"
        );
    }

    #[test]
    fn every_gap_reads_back_from_its_code() {
        for gap in Gap::ALL {
            assert_eq!(gap.code().parse(), Ok(*gap));
        }
    }

    #[test]
    fn every_explanation_is_a_sentence_and_every_fix_an_instruction() {
        for gap in Gap::ALL {
            assert!(gap.explain().ends_with('.') && !gap.explain().contains("  "), "{gap}");
            assert!(!gap.fix().is_empty() && !gap.fix().ends_with('.') && !gap.fix().contains("  "), "{gap}");
        }
    }

    #[test]
    fn a_misspelt_gap_suggests_the_right_one() {
        assert_eq!("shared-kernal".parse::<Gap>().unwrap_err().nearest, Some("shared-kernel"));
    }
}
