//! Why the keeper ends a box, in the words of cards and receipts.

use crate::outcome::Ending;

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
