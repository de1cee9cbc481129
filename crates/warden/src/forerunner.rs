//! The first process of the one box that a single command will ask for, made before it does.
//!
//! Whoever starts a warden for one command thinks about its plan while the warden gets ready. Meanwhile the warden forks into the namespaces
//! of the box, and the new process goes into its group; there it waits for its plan. It is given one that the warden has checked, or it ends:
//! nothing else can be done with it.

use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_sys::cgroup::Limits;
use blastbox_sys::channel;
use blastbox_sys::fork;
use blastbox_wire::limits::MAX_WARDEN_MESSAGE;
use blastbox_wire::plan::{CheckedPlan, First, Ids, Plan};
use blastbox_wire::{Reader, Writer};
use rustix::process::Pid;

use crate::apply::{Making, become_agent};
use crate::boxes::Live;
use crate::groups::new_name;
use crate::ids::Slot;
use crate::launch::first_process;
use crate::places::Places;
use crate::standing::Standing;
use crate::template::Root;
use crate::trouble::{Trouble, Trying};

/// One that waits, or may still be made.
#[derive(Debug)]
pub(crate) enum Forerunner {
    /// There will be none: this warden makes many boxes, or has begun with its one.
    None,
    /// It should be made when there is time.
    Wanted,
    /// It waits, in a group with these limits if it is in one; or has ended, because of this.
    Waits { pid: Pid, limits: Option<Limits>, trouble: Option<Trouble> },
}

/// What is to become of one that waited.
#[derive(Debug)]
pub(crate) enum Fate {
    /// It gets the plan.
    Fits,
    /// The plan is for another kind of box.
    Unneeded,
    /// It would have got the plan.
    Ended(Trouble),
}

impl Forerunner {
    pub(crate) fn is_wanted(&self) -> bool {
        matches!(self, Self::Wanted)
    }

    /// Forks one. It is in no list of boxes that anybody sees, and dies with the warden.
    pub(crate) fn make(&mut self, standing: &mut Standing) -> Result<Live, Trouble> {
        *self = Self::None;
        let (limits, group) = standing.groups.take_from_stock().unzip();
        match first_process(standing, group.as_ref(), |line| wait_for_plan(standing, line)) {
            Ok((pid, line)) => {
                *self = Self::Waits { pid, limits, trouble: None };
                Ok(Live { unborn: true, ..Live::new(new_name()?, pid, group, line) })
            }
            Err(trouble) => {
                if let Some(group) = group {
                    standing.groups.give_back(group, None);
                }
                Err(trouble)
            }
        }
    }

    /// The one that waits, and whether this plan can be given to it: one that came with nothing but its control channel, wants limits that
    /// its group has, and no more users than a box without a root. Either way there is none any more.
    pub(crate) fn take(
        &mut self,
        standing: &Standing,
        plan: &CheckedPlan,
        descriptors: usize,
    ) -> Option<(Pid, Fate)> {
        let Self::Waits { pid, limits, trouble } = std::mem::replace(self, Self::None) else { return None };
        let plan = plan.plan();
        let same = standing.groups.wanted(plan).is_ok_and(|wanted| wanted == limits);
        let users = matches!(plan.ids, Ids::OwnRange | Ids::CallerOnly);
        let fits = same && users && descriptors == 1 && plan.first == First::Agent;
        let fate = match trouble {
            _ if !fits => Fate::Unneeded,
            Some(trouble) => Fate::Ended(trouble),
            None => Fate::Fits,
        };
        Some((pid, fate))
    }

    /// That process has ended. Whoever asks for its box is told: it is not for the warden to say that nothing happened.
    pub(crate) fn has_ended(&mut self, ended: Pid, why: Option<Trouble>) {
        if let Self::Waits { pid, trouble, .. } = self
            && *pid == ended
        {
            *trouble = Some(why.unwrap_or_else(killed));
        }
    }
}

/// Why there is no such process any more, where it did not say so itself.
pub(crate) fn killed() -> Trouble {
    Trouble::plain("give the plan to the box's first process: somebody has ended it")
}

/// Hands a plan over, with the control channel.
pub(crate) fn give_plan(
    line: &OwnedFd,
    plan: &Plan,
    slot: Option<Slot>,
    control: BorrowedFd<'_>,
) -> Result<(), Trouble> {
    let mut message = Writer::default();
    message.u32(slot.map_or(0, |slot| slot.agent));
    message.u32(slot.map_or(0, |slot| slot.payload));
    plan.encode(&mut message);
    channel::send(line, &message.finish(), &[control]).tried("hand over the plan")
}

/// The child's half.
fn wait_for_plan(standing: &Standing, parent: BorrowedFd<'_>) -> Result<Infallible, Trouble> {
    let mut message = vec![0; MAX_WARDEN_MESSAGE + 8];
    let received = channel::receive(parent, &mut message).tried("wait for the plan")?;
    // The warden is gone, or has no use for this one.
    let Some((length, mut descriptors)) = received else { fork::leave(0) };
    let control = descriptors.pop().ok_or_else(|| Trouble::plain("find the control channel"))?;
    let mut from = Reader::new(message.get(..length).unwrap_or_default());
    let unread = |_| Trouble::plain("read the plan that the warden has checked");
    let (root, payload) = (from.u32().map_err(unread)?, from.u32().map_err(unread)?);
    let plan = Plan::decode(&mut from).map_err(unread)?;
    let places =
        Places { given: &[], owners: None, root, payload, template_shows_processes: standing.ids.is_none() };
    become_agent(Making {
        plan: &plan,
        standing,
        root: Root::Own(Vec::new()),
        places,
        network: None,
        control: Some(control.as_fd()),
        inherits: Vec::new(),
        parent,
    })
}
