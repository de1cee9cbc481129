//! A box that is stopped where it stands, and goes on: the warden is asked, and its answer passed on.
//!
//! Nobody waits for it without end. Whoever was told that there was no answer takes the box to be as it was: what the warden has done by
//! the time it answers is undone.

use std::time::Duration;

use super::Driver;
use crate::desk::Pausing;
use crate::error::PauseError;
use crate::state::Event;

/// How long a warden may take to stop a box, or to let it go on. It takes milliseconds; on a busy host its box has processes that the
/// kernel comes to late.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

impl Driver {
    pub(super) fn ask_pause(&mut self, event: Event, to: Pausing) {
        // Asked for so long ago that nobody waits any more.
        if to.is_closed() {
            return;
        }
        if self.pausing.as_ref().is_some_and(Pausing::is_closed) {
            // The answer to an earlier question is still to come, and would be taken for the one to this.
            to.send(Err(PauseError::Unanswered(PATIENCE))).ok();
        } else if self.pausing.is_some() || !self.happen(event) {
            to.send(Err(PauseError::NotNow(self.state))).ok();
        } else {
            self.pausing = Some(to);
        }
    }

    /// The warden has done this.
    pub(super) fn paused(&mut self, event: Event) {
        self.undoing = false;
        self.happen(event);
        if self.answer_pause(Ok(())) {
            return;
        }
        // Nobody hears the answer to this: it is the end of what nobody waited for.
        self.undoing = true;
        match event {
            Event::Paused => self.happen(Event::ResumeAsked),
            _ => self.happen(Event::PauseAsked),
        };
    }

    /// Whether somebody has heard it, or nobody was to.
    pub(super) fn answer_pause(&mut self, outcome: Result<(), PauseError>) -> bool {
        self.pausing.take().is_none_or(|waiting| waiting.send(outcome).is_ok())
    }
}
