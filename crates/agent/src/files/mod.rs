//! File operations, for a host that may not reach into the box itself.
//!
//! Everything is done as the box's user ([`guise`]) and from descriptors ([`place`], [`walk`]). The loop never waits for
//! any of it: an operation works in steps of at most 64 KiB or some dozens of entries, each operation in its turn, and
//! sleeps when it lacks credit, bytes or events.
//!
//! ```text
//! Begin ──► job: read │ write │ list │ remove │ watch │ pack │ unpack (form of archives: wire) ──► Done
//!              ▲ credit, data, events, stop
//! ```
//!
//! Trust: what the host asks is bounded and believed; what lies in the box is the payload's, who changes it all the time.

mod desk;
mod facts;
pub(crate) mod guise;
mod job;
mod left_out;
mod list;
mod pack;
mod place;
mod read;
mod remove;
mod resolve;
mod trouble;
mod unpack;
mod walk;
mod watch;
mod write;

use std::io;
use std::os::fd::OwnedFd;

use blastbox_sys::spawn::Identity;
use blastbox_wire::agent::{AgentFrame, Fault, FileAct, FileAsk, FileEnd, FileSay};
use blastbox_wire::limits::{MAX_FILE_OPS, MAX_WATCHES};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;

use self::guise::Guise;
use self::job::Job;
use self::place::Places;
use self::trouble::Trouble;
use crate::control::Control;

/// Tokens from here on are about file operations.
pub(crate) const FIRST_TOKEN: u64 = 1 << 62;

/// What the host did wrong, or the kernel.
#[derive(Debug)]
pub(crate) enum Wrong {
    /// The host broke the protocol.
    Breach(&'static str),
    /// The agent could not become itself again.
    Stuck(io::Error),
}

/// All operations of the box.
#[derive(Debug)]
pub(crate) struct Files {
    jobs: Vec<Job>,
    serial: u64,
    guise: Guise,
    /// For operations of the box's root; `None`: it has none.
    root: Option<Guise>,
    /// Opened with the first operation: most boxes have none.
    places: Option<Places>,
}

impl Files {
    pub(crate) fn new(payload: Option<Identity>, root: Option<Identity>) -> Self {
        let root = root.map(|root| Guise::new(Some(root)));
        Self { jobs: Vec::new(), serial: FIRST_TOKEN, guise: Guise::new(payload), root, places: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether [`Files::pump`] would find something to do, given room for it.
    pub(crate) fn have_work(&self) -> bool {
        self.jobs.iter().any(|job| job.awake)
    }

    /// An event about an operation. A serial is never used again: an event that comes late finds nobody.
    pub(crate) fn ready(&mut self, token: u64) {
        if let Some(job) = self.jobs.iter_mut().find(|job| job.serial == token) {
            job.awake = true;
        }
    }

    /// The host says something about an operation. One that is over is not known any more, and that is no mistake.
    pub(crate) fn hear(
        &mut self,
        op: u32,
        ask: FileAsk,
        epoll: &OwnedFd,
        control: &mut Control,
    ) -> Result<(), Wrong> {
        let at = self.jobs.iter().position(|job| job.op == op);
        let job = at.and_then(|at| self.jobs.get_mut(at));
        match (ask, job) {
            (FileAsk::Begin { .. } | FileAsk::BeginAsRoot { .. }, Some(_)) => {
                return Err(Wrong::Breach("a second file operation of this number"));
            }
            (FileAsk::Begin { window, act }, None) => {
                return self.begin(op, window, act, self.guise, epoll, control);
            }
            (FileAsk::BeginAsRoot { window, act }, None) => match self.root {
                Some(root) => return self.begin(op, window, act, root, epoll, control),
                None => say_done(op, Trouble(Fault::NotPermitted, Errno::PERM).end(), control),
            },
            (_, None) => {}
            (FileAsk::Credit { bytes }, Some(job)) => job.add_credit(bytes),
            (FileAsk::Data { bytes }, Some(job)) => match job.inflow().map(|inflow| inflow.push(bytes)) {
                Some(Ok(())) => {}
                Some(Err(_)) => return Err(Wrong::Breach("file data over its window, or after its end")),
                None => return Err(Wrong::Breach("data for a file operation that takes none")),
            },
            (FileAsk::DataEnd, Some(job)) => match job.inflow() {
                Some(inflow) => inflow.ended = true,
                None => return Err(Wrong::Breach("an end of data that nobody takes")),
            },
            (FileAsk::Stop, Some(_)) => {
                if let Some(at) = at {
                    let job = self.jobs.remove(at);
                    let stopped = Trouble(Fault::Stopped, Errno::CANCELED);
                    let worn = job.guise.put_on().map_err(Wrong::Stuck)?;
                    job.close(stopped.end(), control);
                    worn.take_off().map_err(Wrong::Stuck)?;
                }
            }
        }
        Ok(())
    }

    /// Ends every operation: whoever asked for them is gone.
    pub(crate) fn stop_all(&mut self, control: &mut Control) -> Result<(), Wrong> {
        for job in self.jobs.drain(..) {
            // Each as whoever it was begun for: what it takes away may be its own alone.
            let worn = job.guise.put_on().map_err(Wrong::Stuck)?;
            job.close(Trouble(Fault::Stopped, Errno::CANCELED).end(), control);
            worn.take_off().map_err(Wrong::Stuck)?;
        }
        Ok(())
    }

    fn begin(
        &mut self,
        op: u32,
        window: u32,
        act: FileAct,
        guise: Guise,
        epoll: &OwnedFd,
        control: &mut Control,
    ) -> Result<(), Wrong> {
        let begun = if self.jobs.len() >= MAX_FILE_OPS {
            Err(Trouble(Fault::TooMany, Errno::AGAIN))
        } else {
            let worn = guise.put_on().map_err(Wrong::Stuck)?;
            let begun = self.open(op, window, act, guise, epoll);
            worn.take_off().map_err(Wrong::Stuck)?;
            begun
        };
        match begun {
            Ok(job) => {
                self.serial = self.serial.saturating_add(1);
                self.jobs.push(job);
            }
            Err(trouble) => say_done(op, trouble.end(), control),
        }
        Ok(())
    }

    fn open(
        &mut self,
        op: u32,
        window: u32,
        act: FileAct,
        guise: Guise,
        epoll: &OwnedFd,
    ) -> Result<Job, Trouble> {
        if self.places.is_none() {
            self.places = Some(Places::open()?);
        }
        let room = self.room_for_watches();
        let Some(places) = &self.places else { return Err(Errno::BADF.into()) };
        let job = Job::begin((op, self.serial, guise), window, act, places, room)?;
        if let Some(events) = job.events() {
            let flags = EventFlags::IN | EventFlags::ET;
            epoll::add(epoll, events, EventData::new_u64(job.serial), flags)?;
        }
        Ok(job)
    }

    fn room_for_watches(&self) -> usize {
        MAX_WATCHES.saturating_sub(self.jobs.iter().map(Job::watches).sum())
    }

    /// One step of each operation that has something to do, while the queue to the host has room.
    pub(crate) fn pump(&mut self, control: &mut Control) -> Result<(), Wrong> {
        if !self.have_work() || !control.has_room() {
            return Ok(());
        }
        let mut worn = self.guise.put_on().map_err(Wrong::Stuck)?;
        let mut room = self.room_for_watches();
        if let Some(places) = &self.places {
            let mut at = 0;
            while let Some(job) = self.jobs.get_mut(at) {
                let watched = job.watches();
                if !worn.is(job.guise) {
                    worn.take_off().map_err(Wrong::Stuck)?;
                    worn = job.guise.put_on().map_err(Wrong::Stuck)?;
                }
                let end =
                    if job.awake && control.has_room() { job.step(control, places, room) } else { None };
                room = room.saturating_add(watched).saturating_sub(job.watches());
                match end {
                    Some(end) => self.jobs.remove(at).close(end, control),
                    None => at = at.saturating_add(1),
                }
            }
            // Whoever came first is not always first: the queue may be full before the last one's turn.
            if self.jobs.len() > 1 {
                self.jobs.rotate_left(1);
            }
        }
        worn.take_off().map_err(Wrong::Stuck)
    }
}

fn say_done(op: u32, end: FileEnd, control: &mut Control) {
    control.send(&AgentFrame::File { op, say: FileSay::Done { end } });
}
