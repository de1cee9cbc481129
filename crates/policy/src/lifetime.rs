//! The lifecycle boundary: how long the box lives and how much it may say.

use crate::{Bytes, Seconds, ThreatLevel};

/// How long the box lives and how much it may say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LifetimeRules {
    /// After this the box is killed, with everything it started.
    pub timeout: Seconds,
    /// Standard output and error together; more is cut off and the cut is reported.
    pub output: Bytes,
}

impl LifetimeRules {
    /// The closed defaults of a level; the same at each.
    pub(crate) const fn at(_level: ThreatLevel) -> Self {
        Self { timeout: Seconds(300), output: Bytes::mib(16) }
    }
}
