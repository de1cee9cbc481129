//! Why the keeper ends a box, in the words of cards and receipts.

use blastbox_wire::receipt::Reason;

use crate::outcome::{DISMISSED, Ending};

/// Why the keeper ends a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Its owner killed it.
    Killed,
    /// Its life was over.
    TimedOut,
    /// It was idle for too long.
    Idle,
    /// It should have been paused and could not.
    NotPaused,
    /// Its owner paused it to disk, where its machine lies now.
    OnDisk,
    /// The keeper stops.
    Stopped,
    /// It ended by itself.
    ByItself,
}

impl Cause {
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::TimedOut => "timed_out",
            Self::Idle => "idle",
            Self::NotPaused => "not_paused",
            Self::OnDisk => "paused_to_disk",
            Self::Stopped => "stopped",
            Self::ByItself => "lost",
        }
    }

    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::Killed => "the owner of the box ended it",
            Self::TimedOut => "the life of the box was over",
            Self::Idle => "the box was idle for too long",
            Self::NotPaused => "the box should have been paused and could not be",
            Self::OnDisk => "the box was paused to disk",
            Self::Stopped => "blastbox was stopped",
            Self::ByItself => "the box ended by itself",
        }
    }

    /// Says in a receipt why the keeper ended the box, where that is all that there is to say: the box of a keeper has no
    /// command of its own that could have been over before.
    pub(crate) fn reword(self, reason: &mut Option<Reason>) {
        if let Some(reason) = reason.as_mut().filter(|reason| reason.code == DISMISSED) {
            self.message().clone_into(&mut reason.message);
        }
    }

    /// What its receipt says, where the box has nothing to say.
    pub(crate) const fn ending(self) -> Ending {
        match self {
            Self::TimedOut | Self::Idle => Ending::TimedOut,
            Self::Killed | Self::NotPaused | Self::OnDisk | Self::Stopped | Self::ByItself => {
                Ending::Dismissed
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Verdict, outcome};

    #[test]
    fn a_box_that_was_ended_by_request_says_that_and_no_command_that_was_cut_off() {
        let reworded = |cause: Cause, ending: &Ending| {
            let Verdict { reason, .. } = outcome(ending, &Default::default());
            let mut reason = reason;
            cause.reword(&mut reason);
            reason.map(|reason| reason.message).unwrap_or_default()
        };
        assert_eq!(reworded(Cause::Killed, &Ending::Dismissed), "the owner of the box ended it");
        assert_eq!(reworded(Cause::Stopped, &Ending::Dismissed), "blastbox was stopped");
        // Whatever else there is to say is said as it is.
        let signalled = reworded(Cause::Killed, &Ending::Interrupted { signal: 2 });
        assert_eq!(signalled, "blastbox got the signal and ended the box");
        assert_eq!(reworded(Cause::TimedOut, &Ending::TimedOut), "");
    }
}
