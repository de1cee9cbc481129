//! The loop: one caller asks, boxes begin and end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use blastbox_sys::cgroup::Group;
use blastbox_sys::{channel, fork};
use blastbox_wire::limits::MAX_WARDEN_MESSAGE;
use blastbox_wire::warden::{Answer, Ask, Spent};
use blastbox_wire::{BoxId, plan::Plan};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::process::{Signal, pidfd_send_signal};

use crate::boxes::{Boxes, Live};
use crate::groups::Groups;
use crate::launch::{SharedNetwork, decode_trouble, give_users, launch};
use crate::standing::Standing;
use crate::template::Templates;
use crate::trouble::{Trouble, Trying};

/// How long the last boxes may take to die after the caller has gone.
const FAREWELL: Duration = Duration::from_secs(2);

const CALLER: u64 = 0;
const MAKING: u64 = 0;
const PROCESS: u64 = 1;

struct Warden {
    standing: Standing,
    templates: Templates,
    network: SharedNetwork,
    boxes: Boxes,
    epoll: OwnedFd,
    message: Vec<u8>,
}

/// Serves the caller on standard input until it goes.
pub(crate) fn serve(standing: Standing) -> Result<(), Trouble> {
    let epoll = epoll::create(CreateFlags::CLOEXEC).tried("make an epoll")?;
    epoll::add(&epoll, caller(), EventData::new_u64(CALLER), EventFlags::IN).tried("watch the caller")?;
    let mut warden = Warden {
        standing,
        templates: Templates::default(),
        network: SharedNetwork::default(),
        boxes: Boxes::default(),
        epoll,
        message: vec![0; MAX_WARDEN_MESSAGE],
    };
    // What was killed together with its warden is released by the next one that comes along.
    let _released: u32 = warden.standing.groups.sweep();
    warden.answer(&Answer::Ready(warden.standing.powers()))?;
    let outcome = warden.listen();
    warden.bury_everybody();
    outcome
}

/// The caller's end is standard input.
fn caller() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

impl Warden {
    fn answer(&self, answer: &Answer) -> Result<(), Trouble> {
        channel::send(caller(), &answer.encode(), &[]).tried("answer the caller")
    }

    fn listen(&mut self) -> Result<(), Trouble> {
        let mut events = Vec::with_capacity(64);
        loop {
            events.clear();
            let preparing = self.standing.groups.wants_stock();
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), preparing.then_some(&at_once)) {
                Ok(0) if preparing => self.standing.groups.restock()?,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error).tried("wait for events"),
            }
            for event in &events {
                match event.data.u64() {
                    CALLER => {
                        if !self.hear()? {
                            return Ok(());
                        }
                    }
                    number if number & 1 == MAKING => self.hear_making(number >> 1)?,
                    number => self.bury(number >> 1)?,
                }
            }
        }
    }

    /// One message of the caller. `false`: it is gone.
    fn hear(&mut self) -> Result<bool, Trouble> {
        let mut message = std::mem::take(&mut self.message);
        let received = channel::receive(caller(), &mut message);
        let going_on = match received {
            Ok(None) => Ok(false),
            // It went without reading our last answers.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Ok(false),
            Ok(Some((length, descriptors))) => {
                let ask = Ask::decode(message.get(..length).unwrap_or_default());
                // A caller that talks nonsense is broken: it loses its boxes rather than getting a guess.
                let ask =
                    ask.map_err(|error| Trouble::plain(format!("read what the caller asks: {error}")))?;
                self.obey(ask, descriptors).map(|()| true)
            }
            Err(error) => Err(error).tried("hear the caller"),
        };
        self.message = message;
        going_on
    }

    fn obey(&mut self, ask: Ask, descriptors: Vec<OwnedFd>) -> Result<(), Trouble> {
        match ask {
            Ask::Launch(plan) => {
                let box_id = plan.box_id.clone();
                match self.begin(*plan, descriptors) {
                    Ok(()) => Ok(()),
                    Err(trouble) => self.answer_failed(box_id, &trouble),
                }
            }
            Ask::Kill(id) => {
                if let Some(live) = self.boxes.find(&id) {
                    self.kill(live);
                }
                Ok(())
            }
            Ask::Pause(id) => self.pause(id, Groups::freeze, |box_id| Answer::Paused { box_id }),
            Ask::Resume(id) => self.pause(id, Groups::thaw, |box_id| Answer::Resumed { box_id }),
            Ask::Sweep => {
                let boxes = self.standing.groups.sweep();
                self.answer(&Answer::Swept { boxes })
            }
        }
    }

    /// Stops a box or lets it go on. Not while it is made: nothing foreign runs in it yet.
    fn pause(
        &self,
        box_id: BoxId,
        act: impl FnOnce(&Groups, &Group) -> Result<(), Trouble>,
        done: impl FnOnce(BoxId) -> Answer,
    ) -> Result<(), Trouble> {
        let outcome = match self.boxes.find(&box_id) {
            Some(Live { group: Some(group), making: None, .. }) => act(&self.standing.groups, group),
            Some(Live { making: Some(_), .. }) => Err(Trouble::plain("pause a box that is still being made")),
            Some(_) => Err(Trouble::plain("pause a box that has no cgroup")),
            None => Err(Trouble::plain("pause a box that is not there")),
        };
        match outcome {
            Ok(()) => self.answer(&done(box_id)),
            Err(trouble) => {
                let tried = trouble.tried.clone().into_owned();
                self.answer(&Answer::NotPaused { box_id, tried, errno: trouble.errno })
            }
        }
    }

    /// Ends a box. One that is stopped dies when it is let go, before it does anything else.
    fn kill(&self, live: &Live) {
        kill(live);
        if let Some(group) = &live.group {
            self.standing.groups.thaw(group).ok();
        }
    }

    fn begin(&mut self, plan: Plan, descriptors: Vec<OwnedFd>) -> Result<(), Trouble> {
        if self.boxes.find(&plan.box_id).is_some() {
            return Err(Trouble::plain("make a box that is there already"));
        }
        let checked = plan
            .check(descriptors.len())
            .map_err(|unsafe_plan| Trouble::plain(format!("check the plan: {unsafe_plan}")))?;
        let live = launch(&mut self.standing, &mut self.templates, &mut self.network, &checked, descriptors)?;
        let number = self.boxes.number();
        let watch = |fd: BorrowedFd<'_>, what| {
            epoll::add(&self.epoll, fd, EventData::new_u64(number << 1 | what), EventFlags::IN)
        };
        let watched = live
            .making
            .as_ref()
            .map_or(Ok(()), |line| watch(line.as_fd(), MAKING))
            .and_then(|()| watch(live.process.as_fd(), PROCESS));
        if watched.is_err() {
            kill(&live);
        }
        self.boxes.add(number, live);
        watched.tried("watch the new box")
    }

    /// The process that is being turned into an agent says something, or has stopped being ours by becoming it.
    fn hear_making(&mut self, number: u64) -> Result<(), Trouble> {
        let Some(live) = self.boxes.get(number) else { return Ok(()) };
        let Some(line) = &live.making else { return Ok(()) };
        let mut message = [0_u8; 256];
        let received = channel::receive(line, &mut message).tried("hear the new box");
        match received {
            Ok(Some((1, _))) if message.first() == Some(&b'm') => {
                if let Err(trouble) = give_users(&self.standing, live) {
                    live.trouble = Some(trouble);
                    kill(live);
                }
                Ok(())
            }
            Ok(Some((length, _))) => {
                live.trouble = message.get(..length).and_then(decode_trouble);
                kill(live);
                Ok(())
            }
            Ok(None) => {
                live.making = None;
                let (box_id, pid) = (live.id.clone(), live.pid);
                if live.trouble.is_none() { self.answer(&Answer::Launched { box_id, pid }) } else { Ok(()) }
            }
            Err(trouble) => {
                live.trouble = Some(trouble);
                kill(live);
                Ok(())
            }
        }
    }

    /// A box's first process has ended, and with it every other: the kernel has seen to that.
    fn bury(&mut self, number: u64) -> Result<(), Trouble> {
        let Some(live) = self.boxes.get(number) else { return Ok(()) };
        if live.making.is_some() && live.trouble.is_none() {
            // It may have said why before it ended.
            self.hear_making(number)?;
        }
        let Some(live) = self.boxes.get(number) else { return Ok(()) };
        let Some(ended) = fork::collect(live.pid).tried("collect a box's first process")? else {
            return Ok(());
        };
        let Some(live) = self.boxes.remove(number) else { return Ok(()) };
        let mut spent =
            Spent { cpu_micros: ended.cpu_micros, agent_signal: ended.signal, ..Spent::default() };
        if let Some(group) = live.group {
            let counts = self.standing.groups.close(group)?;
            spent.memory_peak = counts.memory_peak;
            spent.oom_kills = counts.oom_kills;
            spent.pids_refused = counts.pids_refused;
        }
        if let (Some(slot), Some(ids)) = (live.slot, self.standing.ids.as_mut()) {
            ids.free(slot);
        }
        match live.trouble {
            Some(trouble) => self.answer_failed(live.id, &trouble),
            None => self.answer(&Answer::Ended { box_id: live.id, spent }),
        }
    }

    fn answer_failed(&self, box_id: BoxId, trouble: &Trouble) -> Result<(), Trouble> {
        let tried = trouble.tried.clone().into_owned();
        self.answer(&Answer::Failed { box_id, tried, errno: trouble.errno })
    }

    /// The caller is gone: end every box, wait for it, and leave nothing behind.
    fn bury_everybody(&mut self) {
        for live in self.boxes.all() {
            self.kill(live);
        }
        let deadline = Instant::now() + FAREWELL;
        while !self.boxes.is_empty() && Instant::now() < deadline {
            for number in self.boxes.numbers() {
                // Nobody is left to answer to; what counts is that the box is gone.
                self.bury(number).ok();
            }
            if !self.boxes.is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.standing.groups.clear();
    }
}

fn kill(live: &Live) {
    // An error means that it has ended already, which is what was wanted.
    pidfd_send_signal(&live.process, Signal::KILL).ok();
}
