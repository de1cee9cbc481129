//! The boxes that this warden has made and not yet buried.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use blastbox_sys::cgroup::Group;
use blastbox_wire::BoxId;
use rustix::process::{Pid, Signal, kill_process};

use crate::groups::Groups;
use crate::ids::{Block, Slot};
use crate::trouble::Trouble;

/// One box.
#[derive(Debug)]
pub(crate) struct Live {
    /// Its name.
    pub(crate) id: BoxId,
    /// Its agent's process id, as the warden sees it. It is a child of the warden that nobody else collects, so that the
    /// number stays its own for as long as it is here.
    pub(crate) pid: Pid,
    /// Its group.
    pub(crate) group: Option<Group>,
    /// Its ids.
    pub(crate) slot: Option<Slot>,
    /// The block that is its own, where it has a root: held for as long as it lives.
    pub(crate) block: Option<Block>,
    /// The line to the process that is still being turned into the agent; `None` once it is one.
    pub(crate) making: Option<OwnedFd>,
    /// The line to its gateway, where it has one: open as long as the box lives, so that the gateway ends with it.
    pub(crate) _gateway: Option<OwnedFd>,
    /// What its user namespace needs was written.
    pub(crate) tabled: bool,
    /// It waits for somebody to ask for it, and nobody knows its name.
    pub(crate) unborn: bool,
    /// When it is ended, whatever its caller does.
    pub(crate) until: Option<Instant>,
    /// Its caller's end of the control channel, where it outlives its caller.
    pub(crate) kept: Option<OwnedFd>,
    /// What failed while it was made.
    pub(crate) trouble: Option<Trouble>,
}

impl Live {
    /// One that was just begun, with the line to its first process.
    pub(crate) fn new(id: BoxId, pid: Pid, group: Option<Group>, line: OwnedFd) -> Self {
        Self {
            id,
            pid,
            group,
            slot: None,
            block: None,
            making: Some(line),
            _gateway: None,
            tabled: false,
            until: None,
            kept: None,
            unborn: false,
            trouble: None,
        }
    }
    /// Ends its first process, and with it all others.
    pub(crate) fn kill(&self) {
        // An error means that it has ended already, which is what was wanted.
        kill_process(self.pid, Signal::KILL).ok();
    }
    /// The same, also where it is stopped: it dies when it is let go, before it does anything else.
    pub(crate) fn end(&self, groups: &Groups) -> Result<(), Trouble> {
        self.kill();
        self.group.as_ref().map_or(Ok(()), |group| groups.thaw(group))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    live: HashMap<Pid, Live>,
    names: HashMap<BoxId, Pid>,
    /// When boxes are due, soonest first.
    due: BTreeSet<(Instant, BoxId)>,
}

impl Boxes {
    pub(crate) fn add(&mut self, live: Live) {
        self.names.insert(live.id.clone(), live.pid);
        self.live.insert(live.pid, live);
    }
    pub(crate) fn get(&mut self, pid: Pid) -> Option<&mut Live> {
        self.live.get_mut(&pid)
    }
    pub(crate) fn remove(&mut self, pid: Pid) -> Option<Live> {
        let live = self.live.remove(&pid)?;
        self.names.remove(&live.id);
        live.until.map(|until| self.due.remove(&(until, live.id.clone())));
        Some(live)
    }
    pub(crate) fn find(&self, id: &BoxId) -> Option<&Live> {
        self.live.get(self.names.get(id)?)
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = &Live> {
        self.live.values()
    }
    /// Ends a box in so long from now. A time that no clock knows is none.
    pub(crate) fn end_after(&mut self, id: &BoxId, time: Duration) {
        let Some(live) = self.names.get(id).and_then(|pid| self.live.get_mut(pid)) else { return };
        let until = Instant::now().checked_add(time);
        let before = std::mem::replace(&mut live.until, until);
        before.map(|before| self.due.remove(&(before, id.clone())));
        self.due.extend(until.map(|until| (until, id.clone())));
    }
    /// Keeps a box for whoever comes after its caller.
    pub(crate) fn keep(&mut self, id: &BoxId, channel: Option<OwnedFd>) {
        if let Some(live) = self.names.get(id).and_then(|pid| self.live.get_mut(pid)) {
            live.kept = channel;
        }
    }
    /// Those that are kept, and their channels.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (&BoxId, &OwnedFd)> {
        self.live.values().filter_map(|live| Some((&live.id, live.kept.as_ref()?)))
    }
    /// How long until a box is due.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        self.due.first().map(|(until, _)| until.saturating_duration_since(Instant::now()))
    }
    /// Takes the name of a box that is due, whether it is still there or not. It is due once.
    pub(crate) fn take_due(&mut self) -> Option<BoxId> {
        self.due_in().filter(Duration::is_zero)?;
        self.due.pop_first().map(|(_, id)| id)
    }
    /// Those that somebody has asked for.
    fn born(&self) -> impl Iterator<Item = &Live> {
        self.live.values().filter(|live| !live.unborn)
    }
    /// Whether there are some, and none is still being made.
    pub(crate) fn is_busy(&self) -> bool {
        self.has_born() && self.born().all(|live| live.making.is_none())
    }
    pub(crate) fn has_born(&self) -> bool {
        self.born().next().is_some()
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}
