//! The loop: one caller asks, boxes begin and end.

mod ahead;
mod counts;
mod heirs;

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use blastbox_sys::cgroup::Group;
use blastbox_sys::spawn::{self, Dead, Patience};
use blastbox_sys::{channel, namespaces};
use blastbox_wire::BoxId;
use blastbox_wire::limits::MAX_WARDEN_MESSAGE;
use blastbox_wire::plan::{Denials, First, Plan};
use blastbox_wire::warden::{Answer, Ask, Spent};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Pid;

use crate::boxes::{Boxes, Live};
use crate::embryos::{Embryo, Embryos};
use crate::forerunner::Forerunner;
use crate::groups::Groups;
use crate::launch::{decode_trouble, expect, give_users, hatch, launch, split};
use crate::networks::Networks;
use crate::standing::Standing;
use crate::template::Templates;
use crate::trouble::{Trouble, Trying};

/// How long the last boxes may take to die after the caller has gone.
const FAREWELL: Duration = Duration::from_secs(2);
/// How long a caller may leave the warden without a box before it turns to what others have left.
const UNASKED: Duration = Duration::from_millis(20);
/// How long nobody may have wanted anything before the warden does what can wait, while boxes are alive.
const LEISURE: Duration = Duration::from_micros(1500);

/// How long nobody may have wanted anything before groups that could not be removed are tried again; and so long after it,
/// a box that was killed and could not be let go is.
const LINGERING: Duration = Duration::from_millis(500);

/// The same, once the caller has gone.
const LAST_LOOKS: Duration = Duration::from_millis(5);

/// What an event is about; everything else is the process id of a box in the making.
const CALLER: u64 = 0;
const CHILDREN: u64 = u64::MAX;

struct Warden {
    standing: Standing,
    templates: Templates,
    networks: Networks,
    boxes: Boxes,
    embryos: Embryos,
    forerunner: Forerunner,
    epoll: OwnedFd,
    message: Vec<u8>,
    /// Where whoever comes after the caller connects.
    door: Option<OwnedFd>,
    /// What killed wardens have left was released.
    swept: bool,
}

/// Serves the caller on standard input until it goes.
pub(crate) fn serve(mut standing: Standing, forerunner: Forerunner) -> Result<(), Trouble> {
    let epoll = match watch(&standing) {
        Ok(epoll) => epoll,
        Err(trouble) => {
            standing.groups.clear();
            return Err(trouble);
        }
    };
    let mut warden = Warden {
        standing,
        templates: Templates::default(),
        networks: Networks::default(),
        boxes: Boxes::default(),
        embryos: Embryos::default(),
        forerunner,
        epoll,
        message: vec![0; MAX_WARDEN_MESSAGE],
        door: None,
        swept: false,
    };
    let ready = Answer::Ready(warden.standing.powers());
    let answered = warden.answer(&ready);
    // Most plans want this one, and the caller is still thinking about its first.
    let filtered = warden.standing.filter(&First::Agent, Denials::Reported).map(drop);
    let outcome = answered.and(filtered).and_then(|()| warden.listen_to_all());
    let buried = warden.bury_everybody();
    // The caller waits for the end of this process, with which the kernel takes everything back at once: sooner than one by one.
    std::mem::forget(warden);
    outcome.and(buried)
}

fn watch(standing: &Standing) -> Result<OwnedFd, Trouble> {
    let epoll = epoll::create(CreateFlags::CLOEXEC).tried("make an epoll")?;
    epoll::add(&epoll, caller(), EventData::new_u64(CALLER), EventFlags::IN).tried("watch the caller")?;
    epoll::add(&epoll, &standing.children, EventData::new_u64(CHILDREN), EventFlags::IN)
        .tried("watch the warden's children")?;
    Ok(epoll)
}

/// The caller's end is standard input.
fn caller() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}

fn span(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

impl Warden {
    /// Answers. A caller that is gone is no trouble: the loop sees that next and ends in order, whatever was on its way.
    fn answer(&mut self, answer: &Answer) -> Result<(), Trouble> {
        self.await_room();
        match channel::send(caller(), &answer.encode(), &[]) {
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                Ok(())
            }
            sent => sent.tried("answer the caller"),
        }
    }

    /// A caller that does not read is waited for, but no box lives longer for that.
    fn await_room(&mut self) {
        while poll(&mut [PollFd::new(&caller(), PollFlags::OUT)], self.boxes.due_in().map(span).as_ref())
            == Ok(0)
        {
            self.end_due();
        }
    }

    fn listen(&mut self) -> Result<(), Trouble> {
        let mut events = Vec::with_capacity(64);
        loop {
            self.end_due();
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), self.patience().as_ref()) {
                Ok(0) => self.use_leisure(),
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
                    CHILDREN => self.bury_the_dead()?,
                    pid => {
                        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
                            self.hear_making(pid)?;
                        }
                    }
                }
            }
        }
    }

    /// How long to wait for somebody before there is something else to do.
    fn patience(&self) -> Option<Timespec> {
        self.leisure().into_iter().chain(self.boxes.due_in()).min().map(span)
    }

    /// The same, where no box is ever due.
    fn leisure(&self) -> Option<Duration> {
        let wants_stock = self.standing.groups.wants_stock() || self.networks.wants_stock();
        if wants_stock || self.forerunner.is_wanted() || self.embryos.wanted().is_some() {
            // A box that runs a short command would have to wait for its burial.
            return Some(if self.boxes.has_born() { LEISURE } else { Duration::ZERO });
        }
        // Nobody waits for the sweep: it comes when the first box is on its own, or nobody has asked for one for a while.
        match (self.swept, self.boxes.is_busy()) {
            (false, true) => Some(Duration::ZERO),
            (false, false) => Some(UNASKED),
            (true, _) => self.standing.groups.has_lingering().then_some(LINGERING),
        }
    }

    /// Ends every box whose time is over.
    fn end_due(&mut self) {
        while let Some(id) = self.boxes.take_due() {
            self.end(&id);
        }
    }

    /// Ends a box. One that stays stopped is due again: killed as it is, it dies only when it is let go.
    fn end(&mut self, id: &BoxId) {
        if self.boxes.find(id).is_some_and(|live| live.end(&self.standing.groups).is_err()) {
            self.boxes.end_after(id, LINGERING);
        }
    }

    fn end_all(&mut self, which: impl Fn(&Live) -> bool) {
        let ids: Vec<BoxId> =
            self.boxes.all().filter(|live| which(live)).map(|live| live.id.clone()).collect();
        ids.iter().for_each(|id| self.end(id));
    }

    /// Nobody wants anything just now.
    fn use_leisure(&mut self) {
        if self.networks.wants_stock() {
            self.networks.restock(self.standing.proc.as_fd());
        } else if self.standing.groups.wants_stock() {
            self.standing.groups.restock();
        } else if self.forerunner.is_wanted() {
            self.send_ahead();
        } else if self.embryos.wanted().is_some() {
            // Whoever then needs a box has it made, and learns why it cannot be.
            if self.expect().is_err() {
                self.embryos.give_up(None);
            }
        } else if !self.swept {
            self.sweep();
        } else {
            self.release_lingering();
        }
    }

    /// What could not be removed when its box ended may be removed by now.
    fn release_lingering(&mut self) {
        let freed = self.standing.groups.release_lingering();
        self.standing.free(freed);
    }

    /// Makes the first process of the next box.
    fn expect(&mut self) -> Result<(), Trouble> {
        let Some(plan) = self.embryos.wanted() else { return Ok(()) };
        // To the host's it could not go back without privilege. The one of the embryo before is let go of.
        namespaces::own_host_name().tried("have a host name of its own")?;
        let home =
            namespaces::open(self.standing.proc.as_fd(), "self", "uts").tried("open the own host name")?;
        let live = expect(&mut self.standing, &mut self.templates, &mut self.networks, plan)?;
        let pid = live.pid;
        let process = pid.as_raw_nonzero().to_string();
        let host = namespaces::open(self.standing.proc.as_fd(), &process, "uts");
        if host.is_err() {
            live.kill();
        }
        self.watch(live)?;
        let host = host.tried("open the namespace of a host name")?;
        self.embryos.keep(Embryo { pid, host, home });
        Ok(())
    }

    /// Gives a box to the first process that waited for it.
    fn hatch(&mut self, embryo: &Embryo, box_id: &BoxId, descriptors: Vec<OwnedFd>) -> Result<(), Trouble> {
        let Some(live) = self.boxes.remove(embryo.pid) else {
            return Err(Trouble::plain("find the process that waited"));
        };
        let mut live = Live { id: box_id.clone(), unborn: false, ..live };
        let given = split(descriptors).and_then(|(control, _)| hatch(&live, embryo, control.as_fd()));
        if let Err(trouble) = given {
            live.trouble = Some(trouble);
            live.kill();
        }
        self.boxes.add(live);
        Ok(())
    }

    /// What was killed together with its warden is released by the next one that comes along.
    fn sweep(&mut self) -> u32 {
        self.swept = true;
        self.standing.groups.sweep()
    }

    /// One message of the caller. `false`: it is gone.
    fn hear(&mut self) -> Result<bool, Trouble> {
        let mut message = std::mem::take(&mut self.message);
        let received = channel::receive(caller(), &mut message);
        let going_on = match received {
            Ok(None) => Ok(false),
            // It went without reading our last answers.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
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
                return self
                    .begin(*plan, descriptors)
                    .or_else(|trouble| self.answer_failed(box_id, &trouble));
            }
            Ask::Kill(id) => self.end(&id),
            Ask::Pause(id) => return self.pause(id, Groups::freeze, |box_id| Answer::Paused { box_id }),
            Ask::Resume(id) => return self.pause(id, Groups::thaw, |box_id| Answer::Resumed { box_id }),
            Ask::Keep(id) => self.boxes.keep(&id, descriptors.into_iter().next()),
            Ask::Listen => self.door = descriptors.into_iter().next(),
            Ask::Count(id) => return self.tell_count(id),
            Ask::Until { box_id, millis } => self.boxes.end_after(&box_id, Duration::from_millis(millis)),
            Ask::Sweep => {
                let boxes = self.sweep();
                return self.answer(&Answer::Swept { boxes });
            }
        }
        Ok(())
    }

    /// Stops a box or lets it go on. Not while it is made: nothing foreign runs in it yet.
    fn pause(
        &mut self,
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

    fn begin(&mut self, plan: Plan, descriptors: Vec<OwnedFd>) -> Result<(), Trouble> {
        if self.boxes.find(&plan.box_id).is_some() {
            return Err(Trouble::plain("make a box that is there already"));
        }
        let checked = plan
            .check(descriptors.len())
            .map_err(|unsafe_plan| Trouble::plain(format!("check the plan: {unsafe_plan}")))?;
        let boxes = &mut self.boxes;
        let is_ready = |pid| boxes.get(pid).is_some_and(|live| live.tabled && live.trouble.is_none());
        let count = descriptors.len();
        if count == 1
            && let Some(embryo) = self.embryos.take(checked.plan(), is_ready)
        {
            return self.hatch(&embryo, &checked.plan().box_id, descriptors);
        }
        if let Some(pid) = self.forerunner_for(&checked, count)? {
            return self.give_plan(pid, &checked, descriptors);
        }
        let live =
            launch(&mut self.standing, &mut self.templates, &mut self.networks, &checked, descriptors)?;
        if let Some(unneeded) = self.embryos.saw(checked, count).and_then(|embryo| self.boxes.get(embryo.pid))
        {
            unneeded.kill();
        }
        self.watch(live)
    }

    fn watch(&mut self, live: Live) -> Result<(), Trouble> {
        let data = EventData::new_u64(u64::from(live.pid.as_raw_nonzero().get().unsigned_abs()));
        let watched = live
            .making
            .as_ref()
            .map_or(Ok(()), |line| epoll::add(&self.epoll, line, data, EventFlags::IN))
            .tried("watch the new box");
        if watched.is_err() {
            live.kill();
        }
        self.boxes.add(live);
        watched
    }

    /// The process that is being turned into an agent says something, or has stopped being ours by becoming it.
    fn hear_making(&mut self, pid: Pid) -> Result<(), Trouble> {
        let Some(live) = self.boxes.get(pid) else { return Ok(()) };
        let Some(line) = &live.making else { return Ok(()) };
        let mut message = [0_u8; 256];
        let received = channel::receive(line, &mut message).tried("hear the new box");
        match received {
            Ok(Some((1, _))) if message.first() == Some(&b'm') => {
                match give_users(&self.standing, live) {
                    Ok(()) => live.tabled = true,
                    Err(trouble) => {
                        live.trouble = Some(trouble);
                        live.kill();
                    }
                }
                Ok(())
            }
            Ok(Some((length, _))) => {
                live.trouble = message.get(..length).and_then(decode_trouble);
                live.kill();
                Ok(())
            }
            Ok(None) => {
                live.making = None;
                let box_id = live.id.clone();
                let pid = live.pid.as_raw_nonzero().get().unsigned_abs();
                if live.trouble.is_none() && !live.unborn {
                    self.answer(&Answer::Launched { box_id, pid })
                } else {
                    Ok(())
                }
            }
            Err(trouble) => {
                live.trouble = Some(trouble);
                live.kill();
                Ok(())
            }
        }
    }

    /// Children have ended: first processes of boxes.
    fn bury_the_dead(&mut self) -> Result<(), Trouble> {
        let mut told = [0_u8; 1024];
        // How often it rang says nothing: signals of one kind are merged.
        rustix::io::read(&self.standing.children, &mut told).ok();
        while let Some(dead) = spawn::reap(Patience::Look) {
            self.bury(&dead)?;
        }
        // A warden that is never idle comes to this too.
        if self.standing.groups.has_lingering() {
            self.release_lingering();
        }
        Ok(())
    }

    /// A box's first process has ended, and with it every other: the kernel has seen to that.
    fn bury(&mut self, dead: &Dead) -> Result<(), Trouble> {
        let Some(live) = self.boxes.get(dead.pid) else { return Ok(()) };
        if live.making.is_some() && live.trouble.is_none() {
            // It may have said why before it ended.
            self.hear_making(dead.pid)?;
        }
        let Some(live) = self.boxes.remove(dead.pid) else { return Ok(()) };
        let mut spent = Spent {
            cpu_micros: dead.user_micros.saturating_add(dead.system_micros),
            agent_signal: dead.signal,
            ..Spent::default()
        };
        let mut free = live.slot;
        if let Some(group) = live.group {
            spent = self.count(&group, spent);
            // A group that stays keeps the ids: whatever is in it would otherwise share them with a later box.
            free = self.standing.groups.give_back(group, live.slot);
            self.standing.groups.hold(live.block);
        }
        self.standing.free(free);
        if live.unborn {
            self.embryos.give_up(Some(live.pid));
            self.forerunner.has_ended(live.pid, live.trouble);
            return Ok(());
        }
        match live.trouble {
            Some(trouble) => self.answer_failed(live.id, &trouble),
            None => self.answer(&Answer::Ended { box_id: live.id, spent }),
        }
    }

    fn answer_failed(&mut self, box_id: BoxId, trouble: &Trouble) -> Result<(), Trouble> {
        let tried = trouble.tried.clone().into_owned();
        self.answer(&Answer::Failed { box_id, tried, errno: trouble.errno })
    }

    /// The caller is gone: end every box, wait for it, and leave nothing behind.
    fn bury_everybody(&mut self) -> Result<(), Trouble> {
        self.end_all(|_| true);
        let deadline = Instant::now() + FAREWELL;
        loop {
            self.end_due();
            // A caller may only have said its last word: it is told. What counts is that the box is gone.
            self.bury_the_dead().ok();
            let mut left = deadline.saturating_duration_since(Instant::now());
            left = self.boxes.due_in().map_or(left, |due| due.min(left));
            if deadline <= Instant::now() || (self.boxes.is_empty() && !self.standing.groups.has_lingering())
            {
                break;
            }
            if self.boxes.is_empty() {
                // Nobody says when a group has become empty.
                left = left.min(LAST_LOOKS);
            }
            // Interrupted or not, it is looked at again.
            poll(&mut [PollFd::new(&self.standing.children, PollFlags::IN)], Some(&span(left))).ok();
        }
        if !self.swept {
            self.sweep();
        }
        self.standing.groups.clear();
        self.standing.groups.all_gone()
    }
}
