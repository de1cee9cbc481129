//! One operation from the first question to the last word.

use std::os::fd::{AsFd, OwnedFd};

use blastbox_wire::agent::{
    AgentFrame, Depth, Entry, Fault, FileAct, FileEnd, FileSay, Links, Parents, Target,
};
use blastbox_wire::limits::MAX_PATH;
use rustix::fs::{Mode, RenameFlags};
use rustix::io::Errno;

use super::desk::{Desk, Inflow, Next, Step, finished};
use super::facts;
use super::guise::Guise;
use super::list::List;
use super::pack::Pack;
use super::place::Places;
use super::read::Read;
use super::remove::Remove;
use super::trouble::Trouble;
use super::unpack::Unpack;
use super::watch::Watch;
use super::write::Write;
use crate::control::Control;

/// What is being done.
#[derive(Debug)]
enum Work {
    Read(Read),
    Write(Write),
    List(Box<List>),
    Remove(Box<Remove>),
    Watch(Box<Watch>),
    Pack(Box<Pack>),
    Unpack(Box<Unpack>),
    /// Done at once; the entry that it was about waits to be told.
    Told(Option<Entry>),
}

/// An operation that is not over.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) op: u32,
    pub(super) serial: u64,
    /// Whose files it works with.
    pub(super) guise: Guise,
    /// Whether a step would find something to do.
    pub(super) awake: bool,
    credit: u64,
    inflow: Inflow,
    work: Work,
}

impl Job {
    /// Begins it.
    pub(super) fn begin(
        (op, serial, guise): (u32, u64, Guise),
        window: u32,
        act: FileAct,
        places: &Places,
        watches: usize,
    ) -> Result<Self, Trouble> {
        let work = match act {
            FileAct::Read { path, offset, most, extent } => {
                Work::Read(Read::open(places, &path, offset, most, extent)?)
            }
            FileAct::Write { path, mode, writing, parents } => {
                Work::Write(Write::open(places, &path, mode, writing, parents)?)
            }
            FileAct::List { path, depth, most } => {
                Work::List(Box::new(List::open(places.directory(&path)?, depth, most)?))
            }
            FileAct::Stat { path, links } => Work::Told(Some(stat(places, path, links)?)),
            FileAct::MakeDirectory { path, mode, parents } => {
                make_directory(places, &path, mode, parents)?;
                Work::Told(None)
            }
            FileAct::Move { from, to, target, parents } => {
                rename(places, &from, &to, target, parents)?;
                Work::Told(None)
            }
            FileAct::Remove { path, depth } => {
                let (parent, name) = places.parent(&path, Parents::Expect)?;
                Work::Remove(Box::new(match depth {
                    Depth::One => Remove::one(parent, name),
                    Depth::All => Remove::all(parent, name)?,
                }))
            }
            FileAct::Watch { path, depth } => {
                Work::Watch(Box::new(Watch::open(places, &path, depth, watches)?))
            }
            FileAct::Pack { path } => Work::Pack(Box::new(Pack::open(places, &path)?)),
            FileAct::Unpack { path, parents, most_bytes, most_entries } => {
                Work::Unpack(Box::new(Unpack::open(places, &path, parents, most_bytes, most_entries)?))
            }
        };
        let (credit, inflow) = (u64::from(window), Inflow::default());
        Ok(Self { op, serial, guise, awake: true, credit, inflow, work })
    }

    /// Where its events arrive, for an operation that has such.
    pub(super) fn events(&self) -> Option<&OwnedFd> {
        if let Work::Watch(watch) = &self.work { Some(watch.events()) } else { None }
    }

    /// How many directories it watches.
    pub(super) fn watches(&self) -> usize {
        if let Work::Watch(watch) = &self.work { watch.watches() } else { 0 }
    }

    pub(super) fn add_credit(&mut self, bytes: u32) {
        self.credit = self.credit.saturating_add(u64::from(bytes));
        self.awake = true;
    }

    /// Where bytes of the host go. `None`: it takes none.
    pub(super) fn inflow(&mut self) -> Option<&mut Inflow> {
        self.awake = true;
        matches!(self.work, Work::Write(_) | Work::Unpack(_)).then_some(&mut self.inflow)
    }

    /// A bounded piece of work. How it ended, if it has.
    pub(super) fn step(&mut self, control: &mut Control, places: &Places, watches: usize) -> Option<FileEnd> {
        let Self { op, credit, inflow, work, .. } = self;
        let mut desk = Desk { op: *op, credit, inflow, control, places, watches };
        let next = match work {
            Work::Read(read) => read.step(&mut desk),
            Work::Write(write) => write.step(&mut desk),
            Work::List(list) => list.step(&mut desk),
            Work::Remove(remove) => remove.step(),
            Work::Watch(watch) => watch.step(&mut desk),
            Work::Pack(pack) => pack.step(&mut desk),
            Work::Unpack(unpack) => unpack.step(&mut desk),
            Work::Told(entry) => tell(entry, &mut desk),
        };
        match next {
            Ok(Next::Again) => None,
            Ok(Next::Sleep) => {
                self.awake = false;
                None
            }
            Ok(Next::Done(end)) => Some(end),
            Err(trouble) => Some(trouble.end()),
        }
    }

    /// Says its last word. What is half made goes.
    pub(super) fn close(self, end: FileEnd, control: &mut Control) {
        match self.work {
            Work::Write(write) => write.abandon(),
            Work::Unpack(unpack) => unpack.abandon(),
            Work::Read(_)
            | Work::List(_)
            | Work::Remove(_)
            | Work::Watch(_)
            | Work::Pack(_)
            | Work::Told(_) => {}
        }
        control.send(&AgentFrame::File { op: self.op, say: FileSay::Done { end } });
    }
}

/// An entry costs credit like a list of one.
fn tell(entry: &mut Option<Entry>, desk: &mut Desk<'_>) -> Step {
    let Some(told) = entry.take() else { return Ok(finished(1)) };
    if told.cost() > desk.allowance() {
        *entry = Some(told);
        return Ok(Next::Sleep);
    }
    desk.say(FileSay::Entries { entries: vec![told] });
    Ok(finished(1))
}

fn stat(places: &Places, path: Vec<u8>, links: Links) -> Result<Entry, Trouble> {
    // A name may be asked for that is longer than an answer can repeat.
    let shown = if path.len() > MAX_PATH { Vec::new() } else { path.clone() };
    let found = places.look(&path, links)?;
    let entry = facts::plain(shown, &rustix::fs::fstat(&found)?);
    if entry.kind != blastbox_wire::agent::EntryKind::Link {
        return Ok(entry);
    }
    let (parent, name) = places.parent(&path, Parents::Expect)?;
    Ok(facts::at(parent.as_fd(), &name, entry.path)?)
}

fn make_directory(places: &Places, path: &[u8], mode: u32, parents: Parents) -> Result<(), Trouble> {
    let mode = Mode::from_raw_mode(mode & 0o777);
    let (parent, name) = places.parent(path, parents)?;
    rustix::fs::mkdirat(&parent, &name, mode)?;
    // The agent's umask is not the host's wish. Not over a link that has taken the place.
    let flags = super::place::ENTER;
    if let Ok(made) = rustix::fs::openat(&parent, &name, flags, Mode::empty()) {
        rustix::fs::fchmod(&made, mode).ok();
    }
    Ok(())
}

fn rename(places: &Places, from: &[u8], to: &[u8], target: Target, parents: Parents) -> Result<(), Trouble> {
    let (from_parent, from_name) = places.parent(from, Parents::Expect)?;
    // Before anything is made for it.
    super::place::stat_at(from_parent.as_fd(), &from_name)?;
    let (to_parent, to_name) = places.parent(to, parents)?;
    let flags = match target {
        Target::Replace => RenameFlags::empty(),
        Target::Fresh => RenameFlags::NOREPLACE,
    };
    match rustix::fs::renameat_with(&from_parent, &from_name, &to_parent, &to_name, flags) {
        // A directory into itself.
        Err(Errno::INVAL) => Err(Trouble(Fault::BadPath, Errno::INVAL)),
        done => Ok(done?),
    }
}
