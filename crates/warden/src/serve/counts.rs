//! What a box has used, as its group has counted.

use blastbox_sys::cgroup::{Counts, Group};
use blastbox_wire::BoxId;
use blastbox_wire::warden::{Answer, Spent};

use super::Warden;
use crate::trouble::Trouble;

impl Warden {
    /// Tells what a box has used so far. Of one that is not there any more its end was told.
    pub(super) fn tell_count(&mut self, box_id: BoxId) -> Result<(), Trouble> {
        let Some(live) = self.boxes.find(&box_id) else { return Ok(()) };
        // Also where nobody counts: whoever asked lets others ask only then.
        let spent = live.group.as_ref().map(|group| self.count(group, Spent::default()));
        self.answer(&Answer::Counted { box_id, spent: spent.unwrap_or_default() })
    }

    /// What a group has counted. Whoever is ended with the first process is waited for by nobody: only the group knows what
    /// it used.
    pub(super) fn count(&self, group: &Group, known: Spent) -> Spent {
        let Counts { cpu_micros, memory_peak, oom_kills, pids_refused } = self.standing.groups.counts(group);
        let cpu_micros = known.cpu_micros.max(cpu_micros);
        Spent { cpu_micros, memory_peak, oom_kills, pids_refused, ..known }
    }
}
