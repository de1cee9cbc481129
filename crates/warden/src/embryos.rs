//! A first process in stock, put together for a box that nobody has asked for yet.
//!
//! Whoever asks for many boxes mostly asks for equal ones. From the second equal plan on, the warden makes the next first
//! process while nobody waits: it has put on every layer, closed every descriptor but its line, and waits there for a
//! control channel. It becomes the agent of one box, once; nothing foreign has ever run in it.

use std::os::fd::OwnedFd;

use blastbox_wire::plan::{CheckedPlan, First, Network, Plan};
use rustix::process::Pid;

/// Equal plans in a row before the next one is expected.
const EXPECTED: u32 = 2;

/// One that waits.
#[derive(Debug)]
pub(crate) struct Embryo {
    pub(crate) pid: Pid,
    /// The namespace of its host name, which it cannot set itself any more.
    pub(crate) host: OwnedFd,
    /// The warden's own, to go back to.
    pub(crate) home: OwnedFd,
}

/// What is expected, and the one that is ready for it.
#[derive(Debug, Default)]
pub(crate) struct Embryos {
    expected: Option<CheckedPlan>,
    in_a_row: u32,
    ready: Option<Embryo>,
    /// One died before it was needed: the host does not let them wait.
    given_up: bool,
}

impl Embryos {
    /// The one that fits a plan, if it has everything that it needs.
    pub(crate) fn take(&mut self, plan: &Plan, is_ready: impl FnOnce(Pid) -> bool) -> Option<Embryo> {
        let fits = self.expected.as_ref().is_some_and(|expected| is_same(expected.plan(), plan));
        self.ready.take_if(|embryo| fits && is_ready(embryo.pid))
    }

    /// A box was made by this plan. One that waits for another is not needed any more, and comes back.
    pub(crate) fn saw(&mut self, plan: CheckedPlan, descriptors: usize) -> Option<Embryo> {
        if self.expected.as_ref().is_some_and(|expected| is_same(expected.plan(), plan.plan())) {
            self.in_a_row = self.in_a_row.saturating_add(1);
            return None;
        }
        // What comes with descriptors besides its channel is about something of its caller.
        let plain = descriptors == 1
            && plan.plan().first == First::Agent
            && !matches!(plan.plan().network, Network::Gateway { .. });
        self.in_a_row = 1;
        self.expected = plain.then_some(plan);
        self.ready.take()
    }

    /// The plan by which one should be made now.
    pub(crate) fn wanted(&self) -> Option<&CheckedPlan> {
        let wanted = !self.given_up && self.ready.is_none() && self.in_a_row >= EXPECTED;
        self.expected.as_ref().filter(|_| wanted)
    }

    /// It was made.
    pub(crate) fn keep(&mut self, embryo: Embryo) {
        self.ready = Some(embryo);
    }

    /// None can be made, or this one has ended before it was needed.
    pub(crate) fn give_up(&mut self, pid: Option<Pid>) {
        if pid.is_none() || self.ready.as_ref().map(|embryo| embryo.pid) == pid {
            self.ready = None;
            self.given_up = true;
        }
    }
}

/// Whether two plans make the same box but for its name.
fn is_same(one: &Plan, other: &Plan) -> bool {
    // No `..`: what is added to plans has to be compared.
    let Plan { box_id: _, template, own, ids, network, cgroups, limits, landlock, denials, first } = one;
    *limits == other.limits
        && *ids == other.ids
        && *network == other.network
        && *cgroups == other.cgroups
        && *denials == other.denials
        && *first == other.first
        && *landlock == other.landlock
        && *own == other.own
        && *template == other.template
}
