//! The lifecycle boundary: how long the box lives and how much it may say.

use crate::words::spoken;
use crate::{Bytes, Seconds, ThreatLevel};

/// Whether a box goes on when the daemon that keeps it is killed, for a new one to take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SurvivesDaemon {
    /// It ends with its daemon.
    No,
    /// A new daemon takes it over.
    Yes,
}

spoken!(SurvivesDaemon, "answer", { No = "no", Yes = "yes" });

/// How long the box lives and how much it may say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifetimeRules {
    /// After this the box is killed, with everything it started.
    pub timeout: Seconds,
    /// Standard output and error together; more is cut off and the cut is reported.
    pub output: Bytes,
    /// Whether it goes on when its daemon is killed.
    pub survives_daemon: SurvivesDaemon,
}

impl LifetimeRules {
    /// The closed defaults of a level; the same at each.
    pub(crate) const fn at(_level: ThreatLevel) -> Self {
        Self { timeout: Seconds(300), output: Bytes::mib(16), survives_daemon: SurvivesDaemon::No }
    }
}
