//! The network boundary: what may be reached. Off, until the egress gateway exists.

use crate::ThreatLevel;
use crate::words::spoken;

/// What the box may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkRules {
    /// The way out.
    pub mode: NetworkMode,
    /// The way to itself.
    pub loopback: Loopback,
}

/// The way out of the box. Not `Copy`, so that an allowlist can become a variant without changing callers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum NetworkMode {
    /// Nothing outside the box can be reached.
    #[default]
    Off,
}

spoken!(NetworkMode, "network mode", { Off = "off" });

/// Whether processes of the box can reach each other over `127.0.0.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Loopback {
    /// No interface at all, not even loopback.
    #[default]
    None,
    /// A loopback interface in a network namespace of the box's own.
    Own,
}

spoken!(Loopback, "loopback", { None = "none", Own = "own" });

impl NetworkRules {
    /// The closed defaults of a level: nothing, at each.
    pub(crate) const fn at(_level: ThreatLevel) -> Self {
        Self { mode: NetworkMode::Off, loopback: Loopback::None }
    }
}
