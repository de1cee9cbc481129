//! What an archive leaves out: all of it counted, and the first of it named.

use std::collections::VecDeque;

use blastbox_wire::agent::{Entry, EntryKind};
use blastbox_wire::limits::MAX_LEFT_OUT;

/// What was left out so far.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    count: u64,
    named: VecDeque<Entry>,
}

impl LeftOut {
    /// One more. A file that nobody gets is worth a name before a pipe or a socket is, which nobody expects: where no pipe is
    /// left among the names, all of them are losses.
    pub(super) fn add(&mut self, entry: Entry) {
        self.count = self.count.saturating_add(1);
        if self.named.len() >= MAX_LEFT_OUT {
            let dispensable = self.named.iter().position(|known| known.kind == EntryKind::Other);
            match dispensable {
                Some(at) if entry.kind != EntryKind::Other => drop(self.named.remove(at)),
                Some(_) | None => return,
            }
        }
        self.named.push_back(entry);
    }

    /// How many there are.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// What the next one to be named costs; `None` when all are.
    pub(super) fn cost_of_next(&self) -> Option<usize> {
        self.named.front().map(Entry::cost)
    }

    /// The next one to be named.
    pub(super) fn next(&mut self) -> Option<Entry> {
        self.named.pop_front()
    }
}
