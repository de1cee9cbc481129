//! A box that outlives this process, and one that has outlived the process before.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use blastbox_wire::agent::{HostFrame, StandingExec};
use blastbox_wire::limits::{OUTPUT_WINDOW, STDIN_WINDOW};
use blastbox_wire::warden::Ask;
use tokio::sync::{Semaphore, oneshot};

use super::{Driver, Running};
use crate::outcome::{Ending, Loss};
use crate::outlet::{ExecEnd, Outlet};
use crate::state::Event;
use crate::tools::Offer;

/// Bytes that no box prints, and numbers that no command has: a guest that names more would turn places and numbers over.
const MOST_PRINTED: u64 = u64::MAX / 4;
const MOST_NUMBER: u32 = u32::MAX / 2;

/// A command as it was found.
#[derive(Debug)]
pub(crate) struct Stood {
    pub(crate) exec: u32,
    pub(crate) pid: u32,
    /// What it had printed before the first byte that can still be had.
    pub(crate) from: u64,
    /// Whether it can be given input.
    pub(crate) takes_input: bool,
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) room: Arc<Semaphore>,
}

/// Until the agent has said how it stands.
#[derive(Debug)]
pub(crate) struct Adopting {
    /// What the agent was asked with. A process that was killed while it took the box over may have asked as well.
    token: u64,
    commands: BTreeMap<u32, Command>,
    told: Option<oneshot::Sender<Vec<Stood>>>,
}

#[derive(Debug)]
struct Command {
    outlet: Arc<Outlet>,
    room: Arc<Semaphore>,
    /// Bytes of it that were still on the channel.
    seen: u64,
}

fn running(outlet: &Arc<Outlet>, room: &Arc<Semaphore>) -> Running {
    let (outlet, room, offer) = (Arc::clone(outlet), Arc::clone(room), Offer::default());
    Running { outlet, room, stdin_out: 0, window: OUTPUT_WINDOW, offer, errand: None, has_begun: false }
}

impl Driver {
    /// Leaves the box to whoever comes after this process, should it be killed.
    pub(crate) fn bequeath(&mut self) {
        self.heritable = true;
        // An error means that the warden is gone, and the box with it; or that there is no descriptor left, and then it will not be
        // there for the next daemon.
        if let Ok(agent) = self.agent.as_fd().try_clone_to_owned() {
            self.house.link.say_with(Ask::Keep(self.id.clone()), vec![agent]).ok();
        }
    }

    /// Takes a box over from the process before. These commands may still run in it.
    pub(crate) fn take_over(
        &mut self,
        mark: OwnedFd,
        token: u64,
        commands: &[u32],
    ) -> oneshot::Receiver<Vec<Stood>> {
        let (told, stood) = oneshot::channel();
        self.heritable = true;
        self.mark = Some(mark);
        let mut adopting = Adopting { token, commands: BTreeMap::new(), told: Some(told) };
        for exec in commands {
            let (outlet, room) = (Arc::new(Outlet::default()), Arc::new(Semaphore::new(0)));
            self.log.execs.insert(*exec, running(&outlet, &room));
            adopting.commands.insert(*exec, Command { outlet, room, seen: 0 });
        }
        self.log.adopting = Some(adopting);
        self.send(&HostFrame::Resync { token });
        stood
    }

    /// Is the first to drive a copy of a box that ran. Its commands are those that its agent names.
    pub(crate) fn take_copy(&mut self, token: u64) -> oneshot::Receiver<Vec<Stood>> {
        let (told, stood) = oneshot::channel();
        self.log.adopting = Some(Adopting { token, commands: BTreeMap::new(), told: Some(told) });
        self.send(&HostFrame::Resync { token });
        stood
    }

    pub(crate) fn saw_before(&mut self, exec: u32, bytes: u64) {
        if let Some(command) =
            self.log.adopting.as_mut().and_then(|adopting| adopting.commands.get_mut(&exec))
        {
            command.seen = command.seen.saturating_add(bytes);
        }
    }

    /// The agent says how it stands. Every command has a whole window from here on.
    pub(crate) fn stands(
        &mut self,
        token: u64,
        printed: u64,
        execs: &[StandingExec],
    ) -> Result<(), &'static str> {
        // How it stood for somebody else.
        let Some(Adopting { mut commands, told, .. }) =
            self.log.adopting.take_if(|asked| asked.token == token)
        else {
            return Ok(());
        };
        // The guest's word, like everything it says.
        if printed > MOST_PRINTED
            || execs.iter().any(|exec| exec.printed > printed || exec.exec > MOST_NUMBER)
        {
            return Err("more output or commands than there can be");
        }
        // It had as much before. By the agent's word: one that lies has its budget once more for each daemon that is killed.
        self.output_left = self.output_left.saturating_sub(printed);
        let mut all = Vec::new();
        for standing in execs {
            let StandingExec { exec, pid, ended, printed, unread, takes_input } = *standing;
            let command = match commands.remove(&exec) {
                Some(command) => command,
                None if ended => continue,
                // One that could not be written down when it was begun.
                None => {
                    let (outlet, room) = (Arc::new(Outlet::default()), Arc::new(Semaphore::new(0)));
                    self.log.execs.insert(exec, running(&outlet, &room));
                    Command { outlet, room, seen: 0 }
                }
            };
            if all.iter().any(|stood: &Stood| stood.exec == exec) {
                return Err("a command that stands twice");
            }
            let from = printed.checked_sub(command.seen).ok_or("less output than it has sent")?;
            let Command { outlet, room, .. } = command;
            match self.log.execs.get_mut(&exec) {
                Some(running) if !ended => {
                    running.window = OUTPUT_WINDOW;
                    running.stdin_out = unread;
                    running.has_begun = pid != 0;
                    let free = STDIN_WINDOW.checked_sub(unread).ok_or("more input than its window")?;
                    room.add_permits(usize::try_from(free).unwrap_or(0));
                }
                // Its end was heard by the process before, which was killed before it wrote it down.
                Some(_) => self.lose(exec),
                // Its end was still on the channel.
                None => {}
            }
            if pid != 0 {
                outlet.started(pid);
            }
            all.push(Stood { exec, pid, from, takes_input, outlet, room });
        }
        // Never reached the agent.
        for (exec, Command { outlet, room, .. }) in commands {
            self.lose(exec);
            all.push(Stood { exec, pid: 0, from: 0, takes_input: false, outlet, room });
        }
        self.happen(Event::Greeted);
        if !self.log.execs.is_empty() {
            self.happen(Event::ExecAsked);
            self.happen(Event::CommandStarted);
        }
        self.house.link.count(&self.id);
        if let Some(told) = told {
            // Whoever waited has given up on the box, which is ended.
            told.send(all).ok();
        }
        Ok(())
    }

    fn lose(&mut self, exec: u32) {
        if let Some(lost) = self.log.execs.remove(&exec) {
            lost.room.close();
            lost.outlet.end(ExecEnd::BoxEnded(Ending::Lost(Loss::AgentGone)));
        }
    }
}
