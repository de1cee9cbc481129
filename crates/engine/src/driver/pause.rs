//! A box that is stopped where it stands, and goes on: the warden is asked, and its answer passed on.

use super::Driver;
use crate::desk::Pausing;
use crate::error::PauseError;
use crate::state::Event;

impl Driver {
    pub(super) fn ask_pause(&mut self, event: Event, to: Pausing) {
        if self.pausing.is_some() || !self.happen(event) {
            to.send(Err(PauseError::NotNow(self.state))).ok();
        } else {
            self.pausing = Some(to);
        }
    }

    pub(super) fn paused(&mut self, event: Event, outcome: Result<(), PauseError>) {
        self.happen(event);
        self.answer_pause(outcome);
    }

    pub(super) fn answer_pause(&mut self, outcome: Result<(), PauseError>) {
        if let Some(waiting) = self.pausing.take() {
            // Whoever asked went away; the box is as they wanted it all the same.
            waiting.send(outcome).ok();
        }
    }
}
