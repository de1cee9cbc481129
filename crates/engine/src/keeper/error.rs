//! Why a keeper says no, and whose fault it is.

use std::time::Duration;

use blastbox_isolation::GatewayError;
use blastbox_policy::{BadChange, Refusal, Tier};

use super::cards::Phase;
use crate::engine::SnapshotError;
use crate::error::{Blame, CreateError, PauseError};
use crate::ledger::LedgerError;
use crate::store::StoreError;

/// Why a keeper did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// There is no such box for this tenant, or no such command in it.
    #[error("there is no such box or command")]
    NotFound,
    /// The box is gone, or is being ended by somebody else.
    #[error("the box is gone")]
    Gone,
    /// The box is in no phase for that.
    #[error("the box is {}", .0.as_str())]
    WrongPhase(Phase),
    /// The command has ended, or takes no input any more.
    #[error("the command is over, or its input is")]
    CommandOver,
    /// The command does not wait for an answer to this call, any more or at all.
    #[error("the command does not wait for an answer to this call")]
    CallOver,
    /// Functions are offered to a box that cannot call any.
    #[error("commands in a box of the tier {0} cannot call tools; those of the tier wasm can")]
    NoTools(Tier),
    /// blastbox worked, and the answer is no.
    #[error("refused: {refusal}")]
    Refused {
        /// Why.
        refusal: Refusal,
    },
    /// The tenant has as much as it may have, or asks for more than it may ever have.
    #[error("the quota of {what} is spent")]
    QuotaSpent {
        /// `boxes`, `memory`, `millicpus`, `commands`; with `host_` before it, more than all boxes of this host may have.
        what: &'static str,
    },
    /// The host has no room now.
    #[error("the host has no room now; try again in {} s", .retry_after.as_secs())]
    Busy {
        /// When to try again.
        retry_after: Duration,
    },
    /// The keeper is being stopped and takes nothing new.
    #[error("blastbox is stopping")]
    Stopping,
    /// The box could not be made.
    #[error("the box could not be made")]
    Failed(#[source] CreateError),
    /// The box was not made in time.
    #[error("the box was not ready after {} s", .0.as_secs())]
    TooSlow(Duration),
    /// The box could not be paused, or could not go on.
    #[error("the box could not be paused, or could not go on")]
    Pause(#[source] PauseError),
    /// The box is being ended, and a sink that must acknowledge it has not.
    #[error("the box is ended, but this is not acknowledged yet by every place that must know of it")]
    Unacknowledged,
    /// The box was made without network, and never gets one.
    #[error("the box has no network; one that was made without never gets one")]
    NoNetwork,
    /// Its rules cannot be changed like that.
    #[error("the rules stay as they are")]
    BadRules(#[source] BadChange),
    /// Its gateway did not take other rules.
    #[error("the box's gateway did not take the rules; those before hold, or it has no network any more")]
    RulesNotChanged(#[source] GatewayError),
    /// The box cannot be copied, or the snapshot not be used.
    #[error(transparent)]
    Snapshot(SnapshotError),
    /// What was asked cannot be written into the ledger, and so is not done.
    #[error("it cannot be recorded, and so is not done")]
    Ledger(#[source] LedgerError),
    /// The box cannot be written down, and so is not made. Those that are there go on.
    #[error("no new box is made, because it cannot be written down")]
    Store(#[source] StoreError),
}

impl KeepError {
    /// The stable code.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Gone => "gone",
            Self::WrongPhase(_) => "wrong_phase",
            Self::CommandOver => "command_over",
            Self::CallOver => "call_over",
            Self::NoTools(_) => "tools_unavailable",
            Self::Refused { refusal } => refusal.code(),
            Self::QuotaSpent { .. } => "quota_spent",
            Self::Busy { .. } => "busy",
            Self::Stopping => "stopping",
            Self::Failed(_) => "create_failed",
            Self::TooSlow(_) => "create_too_slow",
            Self::Pause(PauseError::Unanswered(_)) => "pause_unanswered",
            Self::Pause(_) => "pause_failed",
            Self::NoNetwork => "no_network",
            Self::BadRules(_) => "bad_rules",
            Self::RulesNotChanged(_) => "rules_not_changed",
            Self::Snapshot(error) => error.code(),
            Self::Ledger(_) => "ledger_failed",
            Self::Store(_) => "store_failed",
            Self::Unacknowledged => "not_acknowledged",
        }
    }

    /// Whose fault it is.
    #[must_use]
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotFound
            | Self::Gone
            | Self::WrongPhase(_)
            | Self::CommandOver
            | Self::CallOver
            | Self::NoTools(_)
            | Self::Refused { .. }
            | Self::NoNetwork
            | Self::BadRules(_)
            | Self::QuotaSpent { .. } => Blame::Caller,
            Self::Busy { .. }
            | Self::Stopping
            | Self::TooSlow(_)
            | Self::Pause(_)
            | Self::RulesNotChanged(_)
            | Self::Unacknowledged => Blame::Host,
            Self::Snapshot(error) => error.blame(),
            Self::Failed(error) => error.blame(),
            Self::Ledger(error) => error.blame(),
            Self::Store(error) => error.blame(),
        }
    }

    /// When to try again, where trying again may help.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after } => Some(*retry_after),
            Self::Stopping | Self::Unacknowledged | Self::Pause(PauseError::Unanswered(_)) => {
                Some(Duration::from_secs(5))
            }
            Self::NotFound
            | Self::Gone
            | Self::WrongPhase(_)
            | Self::CommandOver
            | Self::CallOver
            | Self::NoTools(_)
            | Self::Refused { .. }
            | Self::QuotaSpent { .. }
            | Self::Failed(_)
            | Self::TooSlow(_)
            | Self::Pause(_)
            | Self::NoNetwork
            | Self::BadRules(_)
            | Self::RulesNotChanged(_)
            | Self::Snapshot(_)
            | Self::Ledger(_)
            | Self::Store(_) => None,
        }
    }
}

impl From<CreateError> for KeepError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::Refused { refusal, .. } => Self::Refused { refusal },
            CreateError::Foreign => Self::Snapshot(SnapshotError::Foreign),
            error @ (CreateError::Channel(_)
            | CreateError::Show { .. }
            | CreateError::Randomness(_)
            | CreateError::Ask(_)
            | CreateError::Gateway(_)
            | CreateError::Secret(_)
            | CreateError::NotReady(_)) => Self::Failed(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_own_code() {
        let refusal = Refusal::TooFewBoundaries { effective: 1 };
        assert_eq!(KeepError::Refused { refusal }.code(), "too_few_boundaries");
    }
}
