//! The credentials boundary: which secrets the box may use. None, until they can be brokered.

use crate::ThreatLevel;
use crate::words::spoken;

/// Which secrets the box may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialRules {
    /// How secrets are lent.
    pub mode: CredentialMode,
}

/// How secrets are lent to the box. Not `Copy`, so that leases can become a variant without changing callers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CredentialMode {
    /// Not at all.
    #[default]
    None,
}

spoken!(CredentialMode, "credential mode", { None = "none" });

impl CredentialRules {
    /// The closed defaults of a level: none, at each.
    pub(crate) const fn at(_level: ThreatLevel) -> Self {
        Self { mode: CredentialMode::None }
    }
}
