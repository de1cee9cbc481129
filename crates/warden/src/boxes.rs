//! The boxes that this warden has made and not yet buried.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use blastbox_sys::cgroup::Group;
use blastbox_wire::BoxId;

use crate::ids::Slot;

/// One box.
#[derive(Debug)]
pub(crate) struct Live {
    /// Its name.
    pub(crate) id: BoxId,
    /// Its agent's process id, as the warden sees it.
    pub(crate) pid: u32,
    /// The agent's process, whatever becomes of the number.
    pub(crate) process: OwnedFd,
    /// Its group.
    pub(crate) group: Option<Group>,
    /// Its ids.
    pub(crate) slot: Option<Slot>,
    /// The line to the process that is still being turned into the agent; `None` once it is one.
    pub(crate) making: Option<OwnedFd>,
    /// What failed while it was made.
    pub(crate) trouble: Option<crate::trouble::Trouble>,
}

/// All of them, by a number that is never used twice.
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    next: u64,
    live: HashMap<u64, Live>,
}

impl Boxes {
    /// A number for the next box.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
    pub(crate) fn add(&mut self, number: u64, live: Live) {
        self.live.insert(number, live);
    }
    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Live> {
        self.live.get_mut(&number)
    }
    pub(crate) fn remove(&mut self, number: u64) -> Option<Live> {
        self.live.remove(&number)
    }
    pub(crate) fn find(&self, id: &BoxId) -> Option<&Live> {
        self.live.values().find(|live| live.id == *id)
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = &Live> {
        self.live.values()
    }
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.live.keys().copied().collect()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}
