//! Signs of life, and what a box has met while it lives.

use blastbox_wire::agent::HostFrame;
use blastbox_wire::warden::Spent;
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::sync::oneshot;

use super::Driver;
use crate::met::Met;
use crate::state::State;

impl Driver {
    /// Asks the agent for a sign of life: a number that only who has read the question knows.
    pub(super) fn ping(&mut self, to: oneshot::Sender<()>) {
        let mut random = [0_u8; 8];
        // Without randomness nobody is told that the agent answered.
        if getrandom(&mut random, GetRandomFlags::empty()).is_ok() && self.log.ping.is_none() {
            let token = u64::from_ne_bytes(random);
            self.log.ping = Some((token, to));
            self.send(&HostFrame::Ping { token });
        }
    }

    /// Asks what the box has met so far: the warden for what the kernel counted, the agent for its scratch space. One that
    /// has not answered yet is not asked again, so that no questions pile up before an agent that is stopped.
    pub(super) fn look_for_limits(&mut self) {
        if !matches!(self.state, State::Ready | State::Executing | State::Completed)
            || self.log.adopting.is_some()
        {
            return;
        }
        self.house.link.count(&self.id);
        // Nobody waits for the sign of life itself.
        self.ping(oneshot::channel().0);
    }

    pub(super) fn counted(&mut self, spent: &Spent) {
        // Of a box that was taken over also what it met before: the process that it was taken from may not have looked any more.
        self.bells.meet(|met| met.counted(spent));
    }

    /// What the guest says that it has met. Of memory and processes only one with a kernel of its own knows anything, and of memory a
    /// worker that refuses it: elsewhere the host's has counted, and is asked.
    pub(crate) fn filled(&mut self, [bytes, inodes, memory, pids]: [bool; 4]) {
        let own = self.log.own_kernel;
        let parts = [bytes, inodes, memory && (own || self.log.refuses_memory), pids && own];
        self.log.tally.met.filled(parts);
        self.bells.meet(|met| met.filled(parts));
    }

    /// What the warden counted of a box that is over, with what the guest's own kernel has counted in it.
    pub(super) fn spent_in_all(&self, spent: Spent) -> Spent {
        // Where memory was refused nobody was killed for it.
        let met = if self.log.own_kernel { self.log.tally.met } else { Met::default() };
        Spent {
            oom_kills: spent.oom_kills.saturating_add(met.memory),
            pids_refused: spent.pids_refused.saturating_add(met.pids),
            ..spent
        }
    }
}
