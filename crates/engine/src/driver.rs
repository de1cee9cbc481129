//! One task per box: carries out what [`state::step`](crate::state::step) says, and talks to the agent.
//!
//! Must not: believe the agent. Whoever speaks on that channel may be a payload that has taken the agent over, so a
//! frame that is malformed, early, late or over its window ends the box, and only that box.

use std::collections::HashMap;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use blastbox_wire::BoxId;
use blastbox_wire::agent::{BootFacts, HostFrame};
use blastbox_wire::limits::{MAX_EXECS, OUTPUT_WINDOW};
use blastbox_wire::plan::Plan;
use blastbox_wire::receipt::NetworkUse;
use blastbox_wire::warden::{Ask, Spent};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::copies::Birth;
use crate::desk::{Bells, Ended, Order, Pausing, Tally};
use crate::engine::House;
use crate::error::PauseError;
use crate::failpoint;
use crate::files::FileTable;
use crate::inbox::Inbox;
use crate::link::Word;
use crate::outcome::{Ending, Loss};
use crate::outlet::{ExecEnd, Outlet};
use crate::patience::{backoff, random_byte};
use crate::state::{Cure, Effect, Event, Load, State, Stop, cure, step};
use crate::tools::{self, Offer};

/// Bytes that may wait for the agent before the driver stops taking orders.
const FULL_OUTBOX: usize = 1024 * 1024;
/// How long the warden may take to confirm that a box is gone.
const RELEASE: Duration = Duration::from_secs(5);
/// How much later than the driver the warden ends a box.
const GRACE: Duration = Duration::from_secs(5);
const EAGAIN: i32 = 11;

/// A command that was sent to the agent and is not over.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) outlet: Arc<Outlet>,
    pub(crate) room: Arc<Semaphore>,
    /// Standard input that the agent has not passed on yet.
    pub(crate) stdin_out: u32,
    /// Output that the agent may still send.
    pub(crate) window: u32,
    /// The functions that it may call.
    pub(crate) offer: Offer,
}

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
    pub(crate) log: Log,
}

/// Everything that a warden needs to make the box.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) plan: Box<Plan>,
    /// The directories that travel with it.
    pub(crate) directories: Vec<OwnedFd>,
}

/// What the driver has learned and not yet sent.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) execs: HashMap<u32, Running>,
    pub(crate) files: FileTable,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Vec<u8>,
    pub(crate) tally: Tally,
    pub(crate) facts: Option<BootFacts>,
    pub(crate) ending: Option<Ending>,
    pub(crate) spent: Spent,
    pub(crate) greeted: Option<Instant>,
    pub(crate) stopped: Option<Instant>,
    /// The agent's channel closed before it said a word. The deadline as it was before the warden's word was waited for.
    pub(crate) mute: Option<Instant>,
    /// Launches that failed.
    pub(crate) failures: u32,
    /// What was sent before the agent spoke: another try sends it again. Let go when it has spoken.
    pub(crate) unheard: Vec<u8>,
    /// The agent was told that no other command follows: that it goes after the last one is what it should do.
    pub(crate) farewell: bool,
    /// What the agent was asked to repeat, and who waits for that.
    pub(crate) ping: Option<(u64, oneshot::Sender<()>)>,
    /// A box of an earlier process, whose agent has not said yet how it stands.
    pub(crate) adopting: Option<Adopting>,
    /// Such a box, and nobody has said yet what it had met by then.
    pub(crate) inherited: bool,
}

enum Happening {
    Word(Option<Word>),
    Order(Option<Order>),
    Agent(io::Result<()>),
    Deadline,
    Credit,
    Moved,
    Stop,
    Retry,
    Morning,
    NeverSlept,
}

impl Driver {
    /// Drives the box until nothing is left of it.
    pub(crate) async fn run(mut self) {
        let mut listening = true;
        self.say_until();
        while self.state != State::Gone {
            let live = !matches!(self.state, State::Teardown);
            let waiting = self.state == State::Error;
            let interest = if self.log.outbox.is_empty() {
                Interest::READABLE
            } else {
                Interest::READABLE | Interest::WRITABLE
            };
            let (asleep, late) = (self.rest.is_asleep(), self.rest.late_at());
            let takes_orders = live
                && listening
                && self.rest.is_awake()
                && self.log.outbox.len() < FULL_OUTBOX
                && self.log.unheard.len() < FULL_OUTBOX;
            let happening = tokio::select! {
                biased;
                word = self.words.recv() => Happening::Word(word),
                () = self.bells.stop.notified(), if live => Happening::Stop,
                () = self.bells.moved.notified(), if live => Happening::Moved,
                () = sleep_until(self.deadline) => Happening::Deadline,
                order = self.orders.recv(), if takes_orders => Happening::Order(order),
                () = self.bells.credit.notified(), if live => Happening::Credit,
                () = sleep_until(self.retry_at), if waiting => Happening::Retry,
                () = self.bells.morning.notified(), if live && asleep => Happening::Morning,
                () = sleep_until(late.unwrap_or(self.deadline)), if live && late.is_some() => Happening::NeverSlept,
                ready = self.agent.ready(interest), if live && !waiting && self.log.mute.is_none() => {
                    Happening::Agent(ready.map(drop))
                }
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
                Happening::Credit => self.send_credit(),
                Happening::Moved => {
                    self.deadline = self.bells.take_deadline().unwrap_or(self.deadline);
                    self.say_until();
                }
                Happening::Stop => self.stop(Stop::Asked, Ending::Dismissed),
                Happening::Retry => drop(self.happen(Event::RetryDue)),
                Happening::Morning => self.wake(),
                Happening::NeverSlept => self.never_slept(),
            }
        }
    }

    /// Tells the warden when it is to end the box by its own clock, should this process hang or be stopped.
    fn say_until(&mut self) {
        let left = self.deadline.saturating_duration_since(Instant::now()).saturating_add(GRACE);
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        // An error means that the warden is gone, and the box with it.
        self.house.link.say(Ask::Until { box_id: self.id.clone(), millis }).ok();
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
                self.birth = None;
                self.log.unheard = Vec::new();
                self.say_ready(Ok(()));
            }
            Effect::EndCommands => {
                let ending = self.log.ending.clone().unwrap_or(Ending::Lost(Loss::AgentGone));
                if let (Some(birth), Ending::Lost(Loss::AgentGone)) = (self.birth.take(), &ending) {
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
                self.orders.close();
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

    fn say_ready(&mut self, ready: Result<(), Ending>) {
        if let Some(waiting) = self.ready.take() {
            // Nobody waits: they went straight on to a command.
            waiting.send(ready).ok();
        }
    }

    fn send_report(&mut self) {
        self.house.link.forget(&self.id);
        let log = mem::take(&mut self.log);
        let now = Instant::now();
        let stopped = log.stopped.unwrap_or(now);
        let greeted = log.greeted.unwrap_or(stopped);
        let ended = Ended {
            spent: log.spent,
            tally: log.tally,
            ending: log.ending.filter(|ending| *ending != Ending::Dismissed),
            // Whoever holds the box knows its gateway.
            network: NetworkUse::default(),
            facts: log.facts,
            setup: greeted.duration_since(self.asked),
            run: stopped.duration_since(greeted),
            teardown: now.duration_since(stopped),
        };
        if let Some(waiting) = self.report.take() {
            // The owner went away without waiting.
            waiting.send(ended).ok();
        }
    }

    fn hear_warden(&mut self, word: Word) {
        self.making = None;
        match word {
            Word::Launched => {}
            Word::Counted(spent) => self.counted(&spent),
            Word::Failed { tried, errno } => {
                self.launch_failed(tried, errno);
            }
            Word::Ended(spent) => {
                // It died by itself: its last words may still lie in the socket.
                if self.state != State::Teardown {
                    self.drain();
                }
                self.log.spent = spent;
                self.log.stopped.get_or_insert_with(Instant::now);
                if self.state != State::Teardown {
                    let ending = match self.is_done() {
                        true => Ending::Dismissed,
                        // The warden's clock was faster than a process that hung, or was stopped.
                        false if Instant::now() >= self.deadline => Ending::TimedOut,
                        false => Ending::Lost(Loss::AgentGone),
                    };
                    self.log.ending.get_or_insert(ending);
                }
                self.happen(Event::Released);
            }
            Word::Paused => self.paused(Event::Paused, Ok(())),
            Word::Resumed => {
                let load = if self.log.execs.is_empty() { Load::Idle } else { Load::Busy };
                self.paused(Event::Resumed(load), Ok(()));
            }
            Word::NotPaused { tried, errno } => {
                self.answer_pause(Err(PauseError::Host { tried, errno }));
            }
            Word::WardenGone => self.stop(Stop::WardenLost, Ending::Lost(Loss::WardenGone)),
            Word::Swept => {
                self.happen(Event::Released);
            }
        }
    }

    /// The warden could not make the box, and has left nothing of it.
    fn launch_failed(&mut self, tried: String, errno: i32) {
        self.log.failures += 1;
        let cure = if self.again.is_some() { cure(self.log.failures, errno) } else { Cure::Nothing };
        if cure == Cure::Retry && self.happen(Event::LaunchFailed(cure)) {
            // Its channel is closed, and so is what was waited for because of that.
            self.deadline = self.log.mute.take().unwrap_or(self.deadline);
            return;
        }
        self.log.ending.get_or_insert(Ending::LaunchFailed { tried, errno });
        self.happen(Event::LaunchFailed(Cure::Nothing));
        self.happen(Event::Released);
    }

    /// Asks the warden once more, over a fresh channel, on which everything is said again that nobody has heard.
    fn launch_again(&mut self) {
        let asked = self.again.as_ref().map(|Launch { plan, directories }| -> io::Result<UnixStream> {
            let (ours, theirs) = StdStream::pair()?;
            ours.set_nonblocking(true)?;
            let ours = UnixStream::from_std(ours)?;
            let fds: Vec<BorrowedFd<'_>> =
                std::iter::once(theirs.as_fd()).chain(directories.iter().map(AsFd::as_fd)).collect();
            self.house.link.ask(&Ask::Launch(plan.clone()), &fds).map_err(io::Error::other)?;
            Ok(ours)
        });
        match asked {
            Some(Ok(ours)) => {
                self.agent = ours;
                if self.heritable {
                    self.house.link.ask(&Ask::Keep(self.id.clone()), &[self.agent.as_fd()]).ok();
                }
                self.log.inbox = Inbox::default();
                self.log.outbox = mem::take(&mut self.log.unheard);
                self.log.unheard = self.log.outbox.clone();
                self.flush();
                self.say_until();
            }
            Some(Err(_)) | None => self.stop(Stop::WardenLost, Ending::Lost(Loss::WardenGone)),
        }
    }

    fn obey(&mut self, order: Order) {
        let frame = match order {
            Order::Exec { spec, outlet, room, offer } => {
                if self.log.execs.len() >= MAX_EXECS || !self.happen(Event::ExecAsked) {
                    let stage = blastbox_wire::agent::Stage::Admission;
                    outlet.end(ExecEnd::NotStarted { stage, errno: EAGAIN });
                    room.close();
                    return;
                }
                let running = Running { outlet, room, stdin_out: 0, window: OUTPUT_WINDOW, offer };
                self.log.execs.insert(spec.exec, running);
                HostFrame::Exec(*spec)
            }
            Order::Stdin { exec, bytes } => {
                let Some(running) = self.log.execs.get_mut(&exec) else { return };
                running.stdin_out =
                    running.stdin_out.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                HostFrame::Stdin { exec, bytes }
            }
            Order::StdinEnd { exec } if self.log.execs.contains_key(&exec) => HostFrame::StdinEnd { exec },
            Order::Resize { exec, rows, columns } if self.log.execs.contains_key(&exec) => {
                HostFrame::Resize { exec, rows, columns }
            }
            Order::Signal { exec, signal } if self.log.execs.contains_key(&exec) => {
                HostFrame::Signal { exec, signal }
            }
            Order::Answer { exec, call, answer } => {
                let Some(running) = self.log.execs.get_mut(&exec) else { return };
                let Some(tool) = running.offer.close(call) else { return };
                if answer.is_err() {
                    self.log.tally.failed(&tool);
                }
                tools::frame(exec, call, &answer)
            }
            Order::Farewell => {
                self.log.farewell = true;
                HostFrame::Farewell
            }
            Order::File { op, order } => return self.obey_file(op, order),
            Order::Ping(to) => return self.ping(to),
            Order::Look => return self.look_for_limits(),
            Order::Pause(to) => return self.ask_pause(Event::PauseAsked, to),
            Order::Resume(to) => return self.ask_pause(Event::ResumeAsked, to),
            Order::Sleep(to) => return self.put_to_sleep(to),
            // The command ended while the order was on its way.
            Order::StdinEnd { .. } | Order::Resize { .. } | Order::Signal { .. } => return,
        };
        self.send(&frame);
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
mod look;
mod pause;
mod rest;
mod talk;
#[cfg(test)]
mod tests;

use adopt::Adopting;
pub(crate) use adopt::Stood;
pub(crate) use rest::{Rest, Sleeping, Sleepless};
