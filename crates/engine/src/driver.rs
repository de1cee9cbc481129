//! One task per box: carries out what [`state::step`](crate::state::step) says, and talks to the agent.
//!
//! Must not: believe the agent. Whoever speaks on that channel may be a payload that has taken the agent over, so a
//! frame that is malformed, early, late or over its window ends the box, and only that box.

use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use blastbox_wire::BoxId;
use blastbox_wire::agent::HostFrame;
use blastbox_wire::warden::Ask;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::copies::Birth;
use crate::desk::{Bells, Ended, Order, Pausing};
use crate::engine::House;
use crate::errands::{self, Brought, Errands};
use crate::failpoint;
use crate::link::Word;
use crate::outcome::{Ending, Loss};
use crate::outlet::ExecEnd;
use crate::patience::{backoff, random_byte};
use crate::state::{Effect, Event, State, Stop, step};

/// Bytes that may wait for the agent before the driver stops taking orders.
pub(crate) const FULL_OUTBOX: usize = 1024 * 1024;
/// How long the warden may take to confirm that a box is gone.
const RELEASE: Duration = Duration::from_secs(5);
/// How long an agent may take to say its first word, whatever the life of its box is: several times what the slowest machine takes to
/// boot on a busy host. A guest that never speaks would otherwise have memory and a place for as long as a box may live.
const SILENCE: Duration = Duration::from_secs(240);

/// Everything about one box while it lives.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) id: BoxId,
    pub(crate) state: State,
    pub(crate) house: Arc<House>,
    pub(crate) agent: UnixStream,
    pub(crate) words: mpsc::UnboundedReceiver<Word>,
    pub(crate) orders: mpsc::Receiver<Order>,
    pub(crate) bells: Arc<Bells>,
    pub(crate) asked: Instant,
    pub(crate) deadline: Instant,
    pub(crate) output_left: u64,
    /// Held until the warden has made the box, or failed to.
    pub(crate) making: Option<OwnedSemaphorePermit>,
    /// Whoever waits for a pause, or for its end.
    pub(crate) pausing: Option<Pausing>,
    /// A pause, or its end, that nobody waited for is being undone.
    pub(crate) undoing: bool,
    pub(crate) ready: Option<oneshot::Sender<Result<(), Ending>>>,
    pub(crate) report: Option<oneshot::Sender<Ended>>,
    /// What it takes to ask for the box once more; `None` once its agent has spoken.
    pub(crate) again: Option<Launch>,
    /// What a box that begins as a copy holds until its agent has spoken.
    pub(crate) birth: Option<Birth>,
    /// When that is due.
    pub(crate) retry_at: Instant,
    /// It outlives this process: what its agent says is taken off the channel only when it was acted upon.
    pub(crate) heritable: bool,
    /// A descriptor that has to reach the agent before anything else does: it says that another host is here.
    pub(crate) mark: Option<OwnedFd>,
    /// Whether it sleeps, to be copied.
    pub(crate) rest: Rest,
    /// Who brings its requests to its gateway, where it has no link.
    pub(crate) errands: Option<Errands>,
    /// Who stays awake for its commands, where they are short.
    pub(crate) vigil: Option<Vigil>,
    pub(crate) log: Log,
}

enum Happening {
    Word(Option<Word>),
    Order(Option<Order>),
    Agent(io::Result<()>),
    Deadline,
    NeverSpoke,
    Credit,
    Moved,
    Stop,
    Retry,
    Morning,
    NeverSlept,
    Brought(Brought),
    Looked(bool),
}

impl Driver {
    /// Drives the box until nothing is left of it.
    pub(crate) async fn run(mut self) {
        let mut listening = true;
        let begun = Instant::now();
        let silence = failpoint::silence(SILENCE);
        let spoken_by = begun + silence;
        self.say_until();
        while self.state != State::Gone {
            // The channel is read without the runtime's knowledge: an agent that never stops talking would keep this thread from every other
            // box, and, once the runtime has enough of this task, the task itself from its own deadline.
            tokio::task::coop::consume_budget().await;
            let live = !matches!(self.state, State::Teardown);
            let waiting = self.state == State::Error;
            let interest = if self.log.outbox.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let mute = self.state == State::Provisioning && self.log.mute.is_none();
            let (asleep, late) = (self.rest.is_asleep(), self.rest.late_at());
            let takes_orders = live
                && listening
                && self.rest.is_awake()
                && self.log.outbox.len() < FULL_OUTBOX
                && self.log.unheard.len() < FULL_OUTBOX;
            let watch = self.awake_until().filter(|_| live && !waiting && self.log.mute.is_none());
            let happening = tokio::select! {
                biased;
                word = self.words.recv() => Happening::Word(word),
                () = self.bells.stop.notified(), if live => Happening::Stop,
                () = self.bells.moved.notified(), if live => Happening::Moved,
                () = sleep_until(self.deadline) => Happening::Deadline,
                () = sleep_until(spoken_by), if mute => Happening::NeverSpoke,
                order = self.orders.recv(), if takes_orders => Happening::Order(order),
                () = self.bells.credit.notified(), if live => Happening::Credit,
                // Not to an agent that reads nothing: what it asked for would pile up here.
                brought = errands::next(&mut self.errands), if live && self.log.outbox.len() < FULL_OUTBOX => Happening::Brought(brought),
                () = sleep_until(self.retry_at), if waiting => Happening::Retry,
                () = self.bells.morning.notified(), if live && asleep => Happening::Morning,
                () = sleep_until(late.unwrap_or(self.deadline)), if live && late.is_some() => Happening::NeverSlept,
                ready = self.agent.ready(interest), if live && !waiting && self.log.mute.is_none() => {
                    Happening::Agent(ready.map(drop))
                }
                has_said = vigil::look(&self.agent, watch.unwrap_or(begun.into_std())), if watch.is_some() => Happening::Looked(has_said),
            };
            match happening {
                Happening::Word(Some(word)) => self.hear_warden(word),
                Happening::Word(None) => self.stop(Stop::WardenLost, Ending::Lost(Loss::WardenGone)),
                Happening::Order(Some(order)) => self.obey(order),
                Happening::Order(None) => listening = false,
                Happening::Agent(Ok(())) => self.talk(),
                Happening::Agent(Err(_)) => self.agent_gone(),
                Happening::Deadline if live && self.log.mute.is_some() => self.agent_gone(),
                Happening::Deadline if live => self.stop(Stop::Deadline, Ending::TimedOut),
                Happening::Deadline => self.give_up(),
                Happening::NeverSpoke => self.stop(Stop::AgentGone, Ending::Lost(Loss::NeverSpoke(silence))),
                Happening::Credit => self.send_credit(),
                Happening::Moved => {
                    self.deadline = self.bells.take_deadline().unwrap_or(self.deadline);
                    self.say_until();
                }
                Happening::Stop => self.stop(Stop::Asked, Ending::Dismissed),
                Happening::Retry => drop(self.happen(Event::RetryDue)),
                Happening::Morning => self.wake(),
                Happening::NeverSlept => self.never_slept(),
                Happening::Looked(has_said) => self.looked(has_said),
                Happening::Brought(Brought { exec, call, answer, .. }) => self.fetched(exec, call, answer),
            }
        }
    }

    /// Carries out one event. One that the state does not know changes nothing and is for the caller to judge.
    pub(crate) fn happen(&mut self, event: Event) -> bool {
        let Ok((next, effects)) = step(self.state, event) else { return false };
        failpoint::cross(self.state, next);
        self.state = next;
        effects.iter().for_each(|effect| self.carry_out(*effect));
        true
    }

    /// Ends the box. The first reason stays.
    pub(crate) fn stop(&mut self, why: Stop, ending: Ending) {
        self.log.ending.get_or_insert(ending);
        let stopped = *self.log.stopped.get_or_insert_with(Instant::now);
        self.deadline = stopped + RELEASE;
        self.happen(Event::Stopped(why));
    }

    /// The agent's channel has closed. One that has never spoken was still being made, and what failed is known to the
    /// warden alone, whose word may be slower than the end of the process: it is asked to end the box, and waited for.
    fn agent_gone(&mut self) {
        if self.state == State::Provisioning && self.log.mute.is_none() {
            self.log.mute = Some(self.deadline);
            self.deadline = Instant::now() + RELEASE;
            self.carry_out(Effect::Kill);
        } else if self.is_done() {
            self.stop(Stop::Asked, Ending::Dismissed);
        } else {
            self.stop(Stop::AgentGone, Ending::Lost(Loss::AgentGone));
        }
    }

    /// Whether the agent has every reason to go: it has done all that it was asked for.
    fn is_done(&self) -> bool {
        self.log.farewell && self.state == State::Completed && self.log.execs.is_empty()
    }

    /// The warden does not answer any more. It is not said of the box that it is gone.
    fn give_up(&mut self) {
        self.log.ending = Some(Ending::Lost(Loss::NotReleased));
        self.happen(Event::Released);
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            // Done by `obey`, which has the command.
            Effect::SendExec => {}
            // The first time it was done by whoever made this driver.
            Effect::Launch => self.launch_again(),
            Effect::AwaitRetry => {
                self.retry_at = Instant::now() + backoff(self.log.failures, random_byte());
            }
            Effect::SayReady => {
                self.log.greeted = Some(Instant::now());
                self.again = None;
                if let Some(birth) = self.birth.take() {
                    birth.succeeded();
                }
                self.log.unheard = Vec::new();
                self.say_ready(Ok(()));
            }
            Effect::EndCommands => {
                let ending = self.log.ending.clone().unwrap_or(Ending::Lost(Loss::AgentGone));
                if let (Some(birth), Ending::Lost(Loss::AgentGone | Loss::NeverSpoke(_))) =
                    (self.birth.take(), &ending)
                {
                    birth.failed();
                }
                for running in mem::take(&mut self.log.execs).into_values() {
                    running.room.close();
                    running.outlet.end(ExecEnd::BoxEnded(ending.clone()));
                }
                self.log.files.end(&ending);
                self.log.ping = None;
                self.rest = Rest::Awake;
                // Nobody can run a command here any more; whoever waits for room to ask learns it.
                self.refuse_the_rest(&ending);
                self.say_ready(Err(ending));
            }
            Effect::Freeze => {
                self.house.link.say(Ask::Pause(self.id.clone())).ok();
            }
            Effect::Thaw => {
                self.house.link.say(Ask::Resume(self.id.clone())).ok();
            }
            Effect::Kill => {
                // An error means that the warden is gone, and then its socket says so.
                self.house.link.say(Ask::Kill(self.id.clone())).ok();
            }
            // The link sweeps once for all the boxes of a lost warden, and tells each of them.
            Effect::Sweep => {}
            Effect::Report => self.send_report(),
        }
    }

    /// Queues a frame and sends what goes at once.
    pub(crate) fn send(&mut self, frame: &HostFrame) {
        let bytes = frame.encode();
        if self.again.is_some() {
            self.log.unheard.extend_from_slice(&bytes);
        }
        // Between two tries there is nobody to send it to; it is among what is said again.
        if self.state != State::Error {
            self.log.outbox.extend(bytes);
            self.flush();
        }
    }

    fn send_credit(&mut self) {
        // It is taken when the box goes on.
        if !self.rest.is_awake() {
            return;
        }
        let mut due = Vec::new();
        for (exec, running) in &mut self.log.execs {
            if let Some(bytes) = running.outlet.take_credit() {
                running.window = running.window.saturating_add(bytes);
                due.push(HostFrame::Credit { exec: *exec, bytes });
            }
        }
        due.iter().for_each(|frame| self.send(frame));
        self.send_file_credit();
    }
}

mod adopt;
mod log;
mod look;
mod obey;
mod pause;
mod report;
mod rest;
mod talk;
#[cfg(test)]
mod tests;
mod vigil;
mod warden;

use adopt::Adopting;
pub(crate) use adopt::Stood;
pub(crate) use log::{Launch, Log, Running};
pub(crate) use pause::PATIENCE;
pub(crate) use rest::{Rest, Sleeping, Sleepless};
pub(crate) use vigil::{Stir, Vigil};
