//! From what the keeper says to what a caller hears: code, status, fix, when to come back. Pure.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::StatusCode;
use blastbox_engine::keeper::KeepError;
use blastbox_engine::{Blame, PauseError, SnapshotError};

/// When a tenant whose quota is spent may look again: nobody knows when it ends a box.
const QUOTA_PAUSE: Duration = Duration::from_secs(5);

/// The stable code: the keeper's own.
pub(crate) fn code(error: &KeepError) -> Cow<'static, str> {
    Cow::Borrowed(error.code())
}

/// The status.
pub(crate) fn status(error: &KeepError) -> StatusCode {
    match error {
        KeepError::NotFound => StatusCode::NOT_FOUND,
        KeepError::Gone
        | KeepError::WrongPhase(_)
        | KeepError::CommandOver
        | KeepError::CallOver
        | KeepError::NoTools(_)
        | KeepError::NoNetwork => StatusCode::CONFLICT,
        KeepError::Refused { .. } | KeepError::BadRules(_) => StatusCode::UNPROCESSABLE_ENTITY,
        KeepError::QuotaSpent { .. } => StatusCode::TOO_MANY_REQUESTS,
        KeepError::Busy { .. }
        | KeepError::Stopping
        | KeepError::TooSlow(_)
        | KeepError::Ledger(_)
        | KeepError::Store(_)
        | KeepError::Unacknowledged
        | KeepError::Pause(PauseError::Unanswered(_)) => StatusCode::SERVICE_UNAVAILABLE,
        KeepError::Pause(PauseError::NotNow(_) | PauseError::Over) => StatusCode::CONFLICT,
        KeepError::Pause(PauseError::Host { .. }) | KeepError::RulesNotChanged(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        KeepError::Snapshot(SnapshotError::NotNow | SnapshotError::Copying) => StatusCode::CONFLICT,
        KeepError::Failed(_) | KeepError::Snapshot(_) => match error.blame() {
            Blame::Caller | Blame::Guest => StatusCode::UNPROCESSABLE_ENTITY,
            Blame::Host | Blame::Blastbox => StatusCode::INTERNAL_SERVER_ERROR,
        },
    }
}

/// What to do about it.
pub(crate) fn fix(error: &KeepError) -> Option<String> {
    let fix = match error {
        KeepError::Refused { refusal } => return Some(refusal.fix()),
        KeepError::QuotaSpent { .. } => {
            "end a box with `blastbox kill BOX`, take a snapshot away with `blastbox snapshot rm`, or have the operator raise the quota"
        }
        KeepError::Failed(_) => "see what the host lacks with `blastbox doctor`",
        KeepError::Snapshot(error) => match error {
            SnapshotError::Tier(_) => {
                "make the box with `--tier microvm`, below level critical and without a workspace"
            }
            SnapshotError::Credentials => "make a box without credentials for what is to be copied",
            SnapshotError::Network => {
                "give it rules again of the kind that it was made with (`blastbox net allow`), or make the box anew under the rules that it has now"
            }
            SnapshotError::BootedAlone => "make the box anew; its receipt says why there was no template",
            SnapshotError::NotNow => "resume the box, or wait until it is ready",
            SnapshotError::Copying => "wait until that is done",
            SnapshotError::DiskFull => {
                "take snapshots away (`blastbox snapshot rm`), or have the operator make room on the disk of the state directory; the box goes on"
            }
            SnapshotError::Foreign | SnapshotError::File(_) => {
                "take another snapshot; see those that there are with `blastbox snapshot ls`"
            }
            SnapshotError::Reach => {
                "make another one; or have the operator open the internet again (`internet`), and resume it then"
            }
            SnapshotError::NotKept => "use a daemon (`blastbox serve`)",
            SnapshotError::Guest(_) | SnapshotError::Failed(_) => "try again; the box goes on",
        },
        KeepError::Ledger(_) => {
            "have the operator look at the ledger (`blastbox audit verify`) and at the disk, and start the daemon again"
        }
        KeepError::Store(_) => "have the operator look at the disk of the state directory, and ask again",
        KeepError::Unacknowledged => {
            "ask for its receipt later; have the operator look at the ledger's sinks"
        }
        KeepError::NoNetwork => "make a box with at least one rule in network.allow",
        KeepError::NoTools(_) => "make the box with `tier` = \"wasm\", or leave `tools` away",
        KeepError::BadRules(_) => "see the rules of the box with `blastbox net rules BOX`",
        KeepError::Busy { .. } | KeepError::Stopping | KeepError::TooSlow(_) => "try again",
        KeepError::NotFound
        | KeepError::Gone
        | KeepError::WrongPhase(_)
        | KeepError::CommandOver
        | KeepError::CallOver
        | KeepError::RulesNotChanged(_)
        | KeepError::Pause(_) => return None,
    };
    Some(fix.to_owned())
}

/// When to come back, where that may help.
pub(crate) fn retry_after(error: &KeepError) -> Option<Duration> {
    match error {
        KeepError::QuotaSpent { .. } => Some(QUOTA_PAUSE),
        other => other.retry_after(),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header::RETRY_AFTER;
    use axum::response::IntoResponse;
    use blastbox_engine::keeper::Phase;
    use blastbox_policy::Refusal;

    use super::*;
    use crate::Trouble;

    #[test]
    fn each_no_of_the_keeper_has_its_status() {
        let refusal = Refusal::TooFewBoundaries { effective: 1 };
        for (error, status, wait) in [
            (KeepError::NotFound, 404, None),
            (KeepError::Gone, 409, None),
            (KeepError::WrongPhase(Phase::Paused), 409, None),
            (KeepError::CommandOver, 409, None),
            (KeepError::CallOver, 409, None),
            (KeepError::Refused { refusal }, 422, None),
            (KeepError::QuotaSpent { what: "boxes" }, 429, Some("5")),
            (KeepError::Busy { retry_after: Duration::from_millis(200) }, 503, Some("1")),
            (KeepError::Stopping, 503, Some("5")),
            (KeepError::Unacknowledged, 503, Some("5")),
            (KeepError::Pause(PauseError::Over), 409, None),
            (KeepError::Pause(PauseError::Unanswered(Duration::from_secs(10))), 503, Some("5")),
        ] {
            let code = error.code();
            let response = Trouble::from(error).into_response();
            assert_eq!(response.status().as_u16(), status, "{code}");
            let header = response.headers().get(RETRY_AFTER).map(|value| value.to_str().unwrap());
            assert_eq!(header, wait, "{code}");
        }
    }
}
