//! What the keeper shows of boxes and commands: cards that faces can print or send.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use blastbox_policy::{Gap, ThreatLevel, Tier};
use blastbox_wire::BoxId;
use serde::{Deserialize, Serialize};

/// Whoever a box belongs to. Nobody sees the boxes of another tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Tenant(String);

/// The text is not the name of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a tenant: expected 1 to 32 of a-z, 0-9 and `-`, beginning with a letter")]
pub struct BadTenant;

impl Tenant {
    /// The tenant of whoever reaches the daemon over its own socket.
    #[must_use]
    pub fn local() -> Self {
        Self("local".to_owned())
    }
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Tenant {
    type Err = BadTenant;
    fn from_str(text: &str) -> Result<Self, BadTenant> {
        let plain = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        let begins = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        if plain && begins && text.len() <= 32 { Ok(Self(text.to_owned())) } else { Err(BadTenant) }
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What happens to a box whose time is over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTimeout {
    /// It is destroyed.
    #[default]
    Destroy,
    /// It is paused, and destroyed only after as long again.
    Pause,
}

/// Where a box is in its life, as its owner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// It is being made.
    Provisioning,
    /// No command runs.
    Ready,
    /// At least one command runs.
    Executing,
    /// Everything in it was stopped.
    Paused,
    /// It is being ended.
    Ending,
    /// Nothing is left of it.
    Gone,
}

impl Phase {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provisioning => "provisioning",
            Self::Ready => "ready",
            Self::Executing => "executing",
            Self::Paused => "paused",
            Self::Ending => "ending",
            Self::Gone => "gone",
        }
    }
}

/// A box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BoxCard {
    /// Its name.
    pub id: BoxId,
    /// Whose it is.
    pub tenant: Tenant,
    /// Where it is in its life.
    pub phase: Phase,
    /// The tier that it really has.
    pub tier: Tier,
    /// The level of its policy.
    pub level: ThreatLevel,
    /// Its policy, by digest.
    pub policy: String,
    /// Its image.
    pub image: String,
    /// The gaps that hold and were accepted.
    pub gaps: Vec<Gap>,
    /// When it was asked for, RFC 3339.
    pub created_at: String,
    /// When it ends at the latest, RFC 3339.
    pub ends_at: String,
    /// Seconds without a command after which its time is over.
    pub idle_seconds: u64,
    /// What happens then.
    pub on_timeout: OnTimeout,
    /// Whether it lies on disk, and holds no memory: `phase` is `paused` then, and its life stands still.
    pub on_disk: bool,
    /// Whether it came from a warm pool.
    pub warm: bool,
    /// What its owner wrote on it.
    pub metadata: BTreeMap<String, String>,
}

/// A command in a box.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExecCard {
    /// Its number in the box.
    pub exec: u32,
    /// Its command line, as text, cut where it is long.
    pub command: Vec<String>,
    /// When it was asked for, RFC 3339.
    pub started_at: String,
    /// Its process id inside the box.
    pub pid: Option<u32>,
    /// Whether it has a terminal.
    pub terminal: bool,
    /// How it ended.
    pub ended: Option<ExecEnded>,
    /// Whether the keeper ended it, by signal 9, because its own time was over.
    pub timed_out: bool,
    /// Its work, where the policy has it counted: known when it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "how")]
pub enum ExecEnded {
    /// It returned.
    Exited {
        /// With this code.
        code: u8,
    },
    /// A signal ended it.
    Signalled {
        /// This one.
        signal: u8,
    },
    /// It did all the work that its policy gives it.
    FuelSpent {
        /// So much.
        fuel: u64,
    },
    /// It could not be started.
    NotStarted {
        /// `not_found`, `not_executable`, …
        code: String,
        /// In words.
        message: String,
    },
    /// Its box ended first.
    BoxEnded {
        /// `timed_out`, `out_of_memory`, `output_limit`, `killed`, `lost`.
        code: String,
        /// In words.
        message: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_that_could_be_a_path_or_a_header_is_none() {
        for bad in ["", "a/b", "..", "A", "1a", "a\n", &"a".repeat(33)] {
            assert_eq!(bad.parse::<Tenant>(), Err(BadTenant), "{bad}");
        }
        assert!("team-7".parse::<Tenant>().is_ok());
    }
}
