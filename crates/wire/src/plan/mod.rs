//! What a tier wants done on the host for one box: a list of data.
//!
//! A tier writes a [`Plan`]; [`Plan::check`] turns it into a [`CheckedPlan`], the only thing that can be carried out.
//! The warden decodes the bytes that it is sent and checks them again, because whoever sends them may be broken.
//!
//! The first list of steps, `template`, makes what boxes of the same image share (a mount namespace that each of them
//! copies); the second, `own`, makes what belongs to one box alone.

mod check;
mod encode;
mod monitor;
mod paths;

pub use check::{CheckedPlan, HOST_VIEW, UnsafePlan};
pub use monitor::{First, Monitor, MonitorKind};
pub use paths::{BadPath, GuestPath, plain};

use crate::BoxId;

/// Which of the descriptors that travel with the plan is meant. 0 is always the control channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(transparent))]
pub struct Slot(pub u8);

/// One thing to do while the box's root is made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case", tag = "step"))]
pub enum Step {
    /// An empty directory of the root.
    Directory {
        /// Where.
        at: GuestPath,
    },
    /// A small file of the root, written by us.
    File {
        /// Where.
        at: GuestPath,
        /// Its content.
        text: String,
    },
    /// A small file of ours over one that the image has. Where the image has none, nothing is shown.
    Cover {
        /// Where.
        at: GuestPath,
        /// Its content.
        text: String,
    },
    /// A symbolic link of the root.
    Link {
        /// Where.
        at: GuestPath,
        /// What it says.
        to: String,
    },
    /// A file or directory of the host, read-only, from the closed list [`HOST_VIEW`].
    HostView {
        /// The host's path, and the path in the box.
        path: GuestPath,
    },
    /// Every entry at the top of an image directory, read-only, except those that the box makes itself.
    Image {
        /// The image's directory.
        slot: Slot,
    },
    /// A file or directory of the host that came as a descriptor, read-only, at a place of its own.
    Show {
        /// Which.
        slot: Slot,
        /// Where.
        at: GuestPath,
    },
    /// One of the harmless devices of the host, or the one that a monitor needs.
    Device {
        /// Its name under /dev.
        name: DeviceName,
    },
    /// The one memory file system of the box: everything that it writes counts against these two numbers.
    Scratch {
        /// Its size in bytes.
        bytes: u64,
        /// How many files and directories it holds.
        inodes: u64,
    },
    /// A directory of the scratch space, shown at this place.
    ScratchDirectory {
        /// Where.
        at: GuestPath,
        /// Whose it is.
        owner: Owner,
        /// Whether programs may be started from it.
        exec: Exec,
    },
    /// The box's own view of its processes, and nothing else of /proc.
    Processes,
    /// The same view at another place: a monitor's /proc is of our making, and holds what it asks for and no more.
    ProcessesAt {
        /// Where.
        at: GuestPath,
    },
    /// The box's own pseudo-terminals.
    Terminals,
    /// The box's own authority, behind every bundle of authorities that its root has and in one of its own.
    Trust {
        /// Its certificate, in the text form; empty until the box's gateway has made it.
        authority: String,
    },
    /// A directory at the top of the image, made writable for this box alone: changes go to the scratch space. Its owner is
    /// shown as the root of the box, who alone may therefore change it.
    Writable {
        /// Where it lies.
        at: GuestPath,
    },
    /// A directory of the caller.
    Workspace {
        /// The directory.
        slot: Slot,
        /// Where it appears.
        at: GuestPath,
        /// What the box may do with it.
        access: WorkspaceAccess,
        /// Whether programs may be started from it.
        exec: Exec,
    },
    /// A directory of the host that the box writes to, and others after it. Its owner is shown as the payload, and nobody else
    /// of the box owns anything there.
    Volume {
        /// The directory.
        slot: Slot,
        /// Where it appears: a name in [`VOLUMES_AT`], which the step before makes of the scratch space, or the volume before.
        at: GuestPath,
        /// Whether programs may be started from it.
        exec: Exec,
    },
}

/// What lies beside volumes: a file by which a warden knows that whoever names a directory as one may write there. It is of
/// the user that the warden is.
pub const VOLUMES: &str = ".blastbox-volumes";

/// Where volumes appear, each by one name in it. Nothing else may be done there: what Landlock grants above a directory holds in it
/// too, and nobody may make a socket in a volume.
pub const VOLUMES_AT: &str = "/mnt";

/// Where the libraries of the host's GPU driver lie in a box that has a GPU and an image of its own.
pub const GPU_LIBRARIES: &str = "/.blastbox/gpu";

/// A device of the host that a box may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum DeviceName {
    /// Swallows everything.
    Null,
    /// Gives zeros.
    Zero,
    /// Is always full.
    Full,
    /// Gives randomness.
    Random,
    /// Gives randomness.
    Urandom,
    /// The terminal of whoever opens it: one of the box's own, or none.
    Tty,
    /// Virtual machines, for a monitor that runs one. Nobody else may have it.
    Kvm,
    /// The first GPU. Whoever opens one of these three talks to the host's NVIDIA driver.
    Nvidia0,
    /// The driver itself.
    Nvidiactl,
    /// The driver's memory that processor and GPU share.
    NvidiaUvm,
}

impl DeviceName {
    /// What a box with a GPU has besides.
    pub const GPU: [Self; 3] = [Self::Nvidia0, Self::Nvidiactl, Self::NvidiaUvm];
    /// Those that every box has.
    pub const HARMLESS: [Self; 6] =
        [Self::Null, Self::Zero, Self::Full, Self::Random, Self::Urandom, Self::Tty];
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Null,
        Self::Zero,
        Self::Full,
        Self::Random,
        Self::Urandom,
        Self::Tty,
        Self::Kvm,
        Self::Nvidia0,
        Self::Nvidiactl,
        Self::NvidiaUvm,
    ];
    /// The name under /dev.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Zero => "zero",
            Self::Full => "full",
            Self::Random => "random",
            Self::Urandom => "urandom",
            Self::Tty => "tty",
            Self::Kvm => "kvm",
            Self::Nvidia0 => "nvidia0",
            Self::Nvidiactl => "nvidiactl",
            Self::NvidiaUvm => "nvidia-uvm",
        }
    }
}

/// Who owns a directory of the scratch space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Owner {
    /// The payload alone.
    Payload,
    /// The root of the box, where it has one.
    Root,
    /// Everybody writes, nobody removes what is another's.
    Everybody,
}

/// Whether programs may be started from a place that the box can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Exec {
    /// They may.
    Allowed,
    /// They may not.
    Denied,
}

/// What a box may do with the caller's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum WorkspaceAccess {
    /// Read it.
    ReadOnly,
    /// Write over it; the changes go to the scratch space and never reach the directory.
    CopyOnWrite,
}

/// Which host users stand behind the users of the box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Ids {
    /// A range of the host's ids that no other box has (needs root).
    OwnRange,
    /// 65,536 of them, one behind each user that an image could know; commands may run as root of the box (needs root).
    OwnBlock,
    /// The caller's own id, for everything.
    CallerOnly,
}

/// What the box has of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Network {
    /// A network namespace of its own in which nothing is up, not even a loopback.
    Empty,
    /// A network namespace of its own with nothing but a loopback.
    Loopback,
    /// A network namespace of its own whose one interface ends in the box's gateway.
    Gateway {
        /// The socket over which the gateway is sent its end.
        slot: Slot,
        /// Whether there is a loopback too.
        loopback: bool,
    },
    /// A network namespace in which nothing is up, around a machine whose network card ends in the box's gateway: by a wire that
    /// its monitor inherits.
    Card {
        /// The line to the gateway, which ends when it closes.
        slot: Slot,
    },
}

/// Which kernel interface holds the limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Cgroups {
    /// One of the two cgroup interfaces, with each of these controllers; one that is missing fails the launch.
    Enforce {
        /// The memory controller must hold `memory`.
        memory: bool,
        /// The cpu controller must hold `millicpus`.
        cpu: bool,
        /// The pids controller must hold `pids`.
        pids: bool,
    },
    /// None can be had: resource limits of single processes only.
    Absent,
}

/// How much the box may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub struct Limits {
    /// Thousandths of a processor.
    pub millicpus: u32,
    /// Bytes of memory, scratch space included.
    pub memory: u64,
    /// Processes and threads.
    pub pids: u32,
    /// Open files of one process.
    pub open_files: u32,
    /// Largest file.
    pub file_size: u64,
}

/// One file right of the second file boundary.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub struct Grant {
    /// The tree.
    pub at: GuestPath,
    /// What may be done beneath it.
    pub access: GrantAccess,
}

/// What a grant allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum GrantAccess {
    /// Read files and list directories.
    Read,
    /// Read, and start programs.
    ReadExecute,
    /// Read and write, without starting programs.
    ReadWrite,
    /// Read, write, and start programs.
    ReadWriteExecute,
    /// Read and write device files.
    Devices,
    /// The same with their ioctls, without which a pseudo-terminal has no size. For `/dev/pts` alone.
    Terminals,
    /// Read, write, and start programs, but make neither sockets nor pipes: others see the directory too.
    Shared,
}

/// The second, independent boundary for files, TCP, abstract sockets and signals.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub struct Landlock {
    /// The oldest interface version that is good enough; 0 = the policy accepts that there is none.
    pub least_abi: u32,
    /// What may be done where. Nothing else may be done anywhere.
    pub grants: Vec<Grant>,
}

/// Whether denied system calls are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub enum Denials {
    /// Each is handed to the agent, which answers it with an error and reports it.
    Reported,
    /// The same, and calls that change a file or a name are handed to it first, which looks at the name and lets them go on.
    WithWrites,
    /// The kernel answers with an error and nobody learns of it.
    Silent,
}

/// Everything that is to be done for one box.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "text", derive(serde::Serialize), serde(rename_all = "kebab-case"))]
pub struct Plan {
    /// The box.
    pub box_id: BoxId,
    /// What boxes of this image share.
    pub template: Vec<Step>,
    /// What belongs to this box alone.
    pub own: Vec<Step>,
    /// Users.
    pub ids: Ids,
    /// Network.
    pub network: Network,
    /// Who holds the limits.
    pub cgroups: Cgroups,
    /// The limits.
    pub limits: Limits,
    /// Second file boundary.
    pub landlock: Landlock,
    /// What happens to denied system calls.
    pub denials: Denials,
    /// What its first process becomes.
    pub first: First,
}

impl Plan {
    /// Fills in the authority that the box's gateway has made. `false`: the plan has no place for one.
    pub fn trust(&mut self, certificate: String) -> bool {
        let place = self.own.iter_mut().find_map(|step| match step {
            Step::Trust { authority } => Some(authority),
            _ => None,
        });
        place.map(|authority| *authority = certificate).is_some()
    }
}
