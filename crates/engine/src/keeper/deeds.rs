//! Tells what a box was denied and where it wrote: in the ledger, in the ring of events and in the metrics.

use blastbox_isolation::syscall_name;
use blastbox_wire::event::{Event, Label};
use tokio::time::Instant;

use super::events::Happened;
use super::house::House;
use super::kept::Kept;
use super::repeats::Repeats;
use crate::deeds::{self, Wrote, name_of};

/// What one box did, as far as it was not told.
#[derive(Debug, Default)]
pub(crate) struct Deeds {
    denied: Repeats<u32>,
    wrote: Repeats<Wrote>,
}

impl Deeds {
    /// Takes in what was done.
    pub(crate) fn count(&mut self, house: &House, done: &deeds::Deeds) {
        for (number, count) in &done.denied {
            house.count(|metrics| metrics.denied(&name_of(*number), *count));
        }
        for (what, count) in &done.wrote {
            house.count(|metrics| metrics.wrote(what.oddity, *count));
        }
        let now = Instant::now();
        self.denied.count(&done.denied, now);
        self.wrote.count(&done.wrote, now);
    }

    /// When something is to be told; `None` where everything is.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.denied.next().into_iter().chain(self.wrote.next()).min()
    }

    /// Tells what is due.
    pub(crate) fn tell_due(&mut self, house: &House, kept: &Kept) {
        let now = Instant::now();
        tell(house, kept, self.denied.due(now), self.wrote.due(now));
    }

    /// Tells all that was not told, at the end.
    pub(crate) fn tell_rest(&mut self, house: &House, kept: &Kept) {
        tell(house, kept, self.denied.rest(), self.wrote.rest());
    }
}

fn tell(house: &House, kept: &Kept, denied: Vec<(u32, u64)>, wrote: Vec<(Wrote, u64)>) {
    let whose = Some((&kept.card.tenant, &kept.card.id));
    for (number, count) in denied {
        let name = syscall_name(number).map(Label::new);
        house.pen.record(&kept.about(), &Event::SyscallDenied { number, name, count });
        house.hub.tell(whose, Happened::SyscallDenied { syscall: name_of(number), count });
    }
    for (what, count) in wrote {
        let (syscall, reason) = (what.syscall(), what.oddity.as_str());
        let event = Event::UnexpectedWrite {
            path: Label::new(&what.path),
            reason: Label::new(reason),
            syscall: Label::new(&syscall),
            count,
        };
        house.pen.record(&kept.about(), &event);
        let reason = reason.to_owned();
        house.hub.tell(whose, Happened::UnexpectedWrite { path: what.path, reason, syscall, count });
    }
}
