//! Layers that a test build leaves out, and what stands behind the control that stops an attempt first.

use blastbox_policy::Gap;
use serde::Serialize;

/// A layer that a test build leaves out, to show that the next one holds alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The filter of system calls.
    Seccomp,
    /// Landlock.
    Landlock,
    /// The root of its own: the host's whole root is shown in the box as well.
    Mounts,
    /// The network namespace of its own.
    Network,
    /// The limit of processes of its cgroup.
    Pids,
    /// The limits on bytes and files of its scratch space.
    Scratch,
    /// The layer over the caller's directory that takes what the box changes.
    Overlay,
    /// The user of its own that the agent is: commands are the same one.
    Users,
    /// That commands have no capability: they keep every one of the box's user namespace.
    Capabilities,
    /// The process ids of its own.
    Processes,
    /// That the agent closes what it was started with.
    Descriptors,
}

impl Layer {
    /// Every layer.
    pub const ALL: [Self; 11] = [
        Self::Seccomp,
        Self::Landlock,
        Self::Mounts,
        Self::Network,
        Self::Pids,
        Self::Scratch,
        Self::Overlay,
        Self::Users,
        Self::Capabilities,
        Self::Processes,
        Self::Descriptors,
    ];

    /// What has to be there for the next one to hold, and is not where a policy accepts this gap.
    fn falls_with(self) -> Option<Gap> {
        match self {
            Self::Mounts | Self::Network | Self::Processes => Some(Gap::WeakLandlock),
            Self::Scratch => Some(Gap::NoMemoryLimit),
            Self::Seccomp
            | Self::Landlock
            | Self::Pids
            | Self::Overlay
            | Self::Users
            | Self::Capabilities
            | Self::Descriptors => None,
        }
    }

    /// Further options of the boxes in which the next one is to hold: a limit that is met later is met within the attempt's bounds.
    pub(crate) fn narrows(self) -> &'static [&'static str] {
        if self == Self::Scratch { &["--memory", "48MiB"] } else { &[] }
    }

    /// Why a caller who is not root has no such boxes, where that is so.
    pub(crate) fn needs_root(self) -> Option<&'static str> {
        (self == Self::Processes)
            .then_some("the kernel shows an ordinary user no processes but those of namespaces of its own")
    }

    /// Its word, which is also the directory of its test build.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seccomp => "seccomp",
            Self::Landlock => "landlock",
            Self::Mounts => "mounts",
            Self::Network => "network",
            Self::Pids => "pids",
            Self::Scratch => "scratch",
            Self::Overlay => "overlay",
            Self::Users => "users",
            Self::Capabilities => "capabilities",
            Self::Processes => "processes",
            Self::Descriptors => "descriptors",
        }
    }
}

/// What holds if the first control falls. Nothing is named here that is not shown, unless it is said why.
#[derive(Debug, Clone, Copy)]
pub enum Second {
    /// This does, and lifting the layer shows it.
    Behind(Layer, &'static str),
    /// The same, unless this gap is accepted.
    BehindUnless(Layer, &'static str, Gap),
    /// This should; why no build lifts the first control alone to show it.
    Unlifted(&'static str, &'static str),
    /// Nothing does. Why that is so.
    Nothing(&'static str),
    /// Nothing stops the call itself: what is gained is surface, not authority. Why that is all.
    Surface(&'static str),
}

impl Second {
    /// The layer that is lifted to show it.
    #[must_use]
    pub fn layer(self) -> Option<Layer> {
        match self {
            Self::Behind(layer, _) | Self::BehindUnless(layer, ..) => Some(layer),
            Self::Unlifted(..) | Self::Nothing(_) | Self::Surface(_) => None,
        }
    }

    /// What it is.
    #[must_use]
    pub fn control(self) -> &'static str {
        match self {
            Self::Behind(_, text) | Self::BehindUnless(_, text, _) | Self::Unlifted(text, _) => text,
            Self::Nothing(_) => "nothing",
            Self::Surface(_) => "nothing: what is gained is surface",
        }
    }

    /// Why it is not shown.
    #[must_use]
    pub fn reason(self) -> Option<&'static str> {
        match self {
            Self::Behind(..) | Self::BehindUnless(..) => None,
            Self::Unlifted(_, why) | Self::Nothing(why) | Self::Surface(why) => Some(why),
        }
    }

    /// Gaps with which it falls, where a policy accepts them.
    pub(crate) fn falls_with(self) -> impl Iterator<Item = Gap> {
        let own = if let Self::BehindUnless(_, _, gap) = self { Some(gap) } else { None };
        own.into_iter().chain(self.layer().and_then(Layer::falls_with))
    }
}
