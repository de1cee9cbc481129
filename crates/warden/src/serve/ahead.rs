//! The one box of a single command: its first process is sent ahead, and the plan follows.

use std::os::fd::OwnedFd;

use blastbox_wire::plan::CheckedPlan;
use rustix::process::Pid;

use super::Warden;
use crate::boxes::Live;
use crate::forerunner::{Fate, killed};
use crate::launch::go_on;
use crate::trouble::Trouble;

impl Warden {
    /// Makes it while the caller thinks about its plan.
    pub(super) fn send_ahead(&mut self) {
        // Whoever asks for the box has it made then, and learns why it cannot be.
        if let Ok(live) = self.forerunner.make(&mut self.standing) {
            self.watch(live).ok();
        }
    }

    /// The one that can be given this plan. One that is there and cannot is ended: there will be no other use for it.
    pub(super) fn forerunner_for(
        &mut self,
        plan: &CheckedPlan,
        descriptors: usize,
    ) -> Result<Option<Pid>, Trouble> {
        let Some((pid, fate)) = self.forerunner.take(&self.standing, plan, descriptors) else {
            return Ok(None);
        };
        let live = self.boxes.get(pid);
        match (fate, live) {
            (Fate::Fits, Some(live)) if live.trouble.is_none() && live.making.is_some() => Ok(Some(pid)),
            (Fate::Fits, live) => {
                let why = live.and_then(|live| {
                    live.kill();
                    live.trouble.take()
                });
                Err(why.unwrap_or_else(killed))
            }
            (Fate::Ended(trouble), _) => Err(trouble),
            (Fate::Unneeded, live) => {
                live.into_iter().for_each(|live| live.kill());
                self.standing.groups.was_no_use();
                Ok(None)
            }
        }
    }

    /// Gives it its plan.
    pub(super) fn give_plan(
        &mut self,
        pid: Pid,
        plan: &CheckedPlan,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Trouble> {
        let Some(live) = self.boxes.remove(pid) else {
            return Err(Trouble::plain("find the process that waited"));
        };
        let mut live = Live { id: plan.plan().box_id.clone(), unborn: false, ..live };
        if let Err(trouble) = go_on(&mut self.standing, &mut self.networks, plan, descriptors, &mut live) {
            live.trouble = Some(trouble);
            live.kill();
        }
        self.boxes.add(live);
        Ok(())
    }
}
