//! The caller is gone, and another one may come for the boxes that were to be kept.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use blastbox_sys::channel;
use blastbox_wire::warden::Answer;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{SocketFlags, accept_with};

use super::{CALLER, Warden, caller, span};
use crate::trouble::{Trouble, Trying};

/// How long boxes are kept for whoever comes after the caller.
const HEIR: Duration = Duration::from_secs(60);

impl Warden {
    /// Listens to the caller, and to those that come after it.
    pub(super) fn listen_to_all(&mut self) -> Result<(), Trouble> {
        loop {
            self.listen()?;
            if !self.await_heir()? {
                return Ok(());
            }
        }
    }

    /// The caller is gone. What it wanted to be kept is kept for a while, and the rest ends. `false`: nobody came.
    fn await_heir(&mut self) -> Result<bool, Trouble> {
        self.end_all(|live| live.kept.is_none());
        let patience = Instant::now() + HEIR;
        while let Some(door) = self.door.as_ref().filter(|_| self.boxes.kept().next().is_some()) {
            let left = patience.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let left = span(self.boxes.due_in().map_or(left, |due| due.min(left)));
            let mut seen =
                [PollFd::new(door, PollFlags::IN), PollFd::new(&self.standing.children, PollFlags::IN)];
            // Interrupted or not, it is looked at again.
            poll(&mut seen, Some(&left)).ok();
            let knocked = seen.first().is_some_and(|door| !door.revents().is_empty());
            if knocked && self.welcome()? {
                return Ok(true);
            }
            self.end_due();
            self.bury_the_dead()?;
        }
        Ok(false)
    }

    /// Whoever has connected takes the place of the caller, if it is the same user: to somebody else's nobody belongs here.
    fn welcome(&mut self) -> Result<bool, Trouble> {
        let Some(Ok(heir)) = self.door.as_ref().map(|door| accept_with(door, SocketFlags::CLOEXEC)) else {
            return Ok(false);
        };
        if !socket_peercred(&heir).is_ok_and(|peer| peer.uid == rustix::process::geteuid()) {
            return Ok(false);
        }
        epoll::delete(&self.epoll, caller()).tried("leave the caller")?;
        rustix::stdio::dup2_stdin(&heir).tried("take another caller")?;
        epoll::add(&self.epoll, caller(), EventData::new_u64(CALLER), EventFlags::IN)
            .tried("watch the caller")?;
        let kept: Vec<_> = self.boxes.kept().map(|(id, _)| id.clone()).collect();
        for box_id in kept {
            self.await_room();
            let Some(channel) = self.boxes.find(&box_id).and_then(|live| live.kept.as_ref()) else {
                continue;
            };
            // One that is gone again is seen to be so by the loop.
            channel::send(caller(), &Answer::Held { box_id }.encode(), &[channel.as_fd()]).ok();
        }
        // Others may have been killed meanwhile.
        self.swept = false;
        self.answer(&Answer::Ready(self.standing.powers()))?;
        Ok(true)
    }
}
