//! What the owner of a box hears of its beginning and its end.

use std::mem;

use blastbox_wire::receipt::NetworkUse;
use tokio::time::Instant;

use super::Driver;
use crate::desk::Ended;
use crate::outcome::Ending;

impl Driver {
    pub(super) fn say_ready(&mut self, ready: Result<(), Ending>) {
        if let Some(waiting) = self.ready.take() {
            // Nobody waits: they went straight on to a command.
            waiting.send(ready).ok();
        }
    }

    pub(super) fn send_report(&mut self) {
        self.house.link.forget(&self.id);
        let log = mem::take(&mut self.log);
        let now = Instant::now();
        let stopped = log.stopped.unwrap_or(now);
        let greeted = log.greeted.unwrap_or(stopped);
        let ended = Ended {
            spent: log.spent,
            tally: log.tally,
            ending: log.ending.filter(|ending| *ending != Ending::Dismissed),
            // Whoever holds the box knows its gateway.
            network: NetworkUse::default(),
            facts: log.facts,
            setup: greeted.duration_since(self.asked),
            run: stopped.duration_since(greeted),
            teardown: now.duration_since(stopped),
        };
        if let Some(waiting) = self.report.take() {
            // The owner went away without waiting.
            waiting.send(ended).ok();
        }
    }
}
