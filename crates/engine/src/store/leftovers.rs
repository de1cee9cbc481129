//! What a killed daemon left, and its release by a new one.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use blastbox_isolation::{Door, Farewell, Inheritance, Mark, Warden, WardenError, WardenName};
use blastbox_wire::BoxId;
use blastbox_wire::warden::Ask;

use super::boxes::{BoxRow, BoxState};
use super::error::StoreError;
use super::file::Store;
use super::journal::{Resource, ResourceKind, is_this_start};
use crate::failpoint;

/// How long a warden whose daemon is gone may take to end its boxes and itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a killed daemon left.
#[derive(Debug)]
pub struct Leftovers {
    /// Boxes that were somebody's and of which nothing goes on.
    pub boxes: Vec<BoxRow>,
    /// Boxes that were nobody's: in the making, or in a pool.
    pub nobodys: Vec<BoxId>,
    /// Wardens that had to be killed, because they hung or were stopped.
    pub killed: usize,
    /// Wardens that could not be ended, by name and with the reason. The next daemon tries again.
    pub stuck: Vec<String>,
    /// The warden that has kept boxes, where one has.
    pub warden: Option<Warden>,
    /// Boxes that lie on disk, of which nothing runs.
    pub on_disk: Vec<BoxRow>,
    /// Those boxes, with the host's end of their control channels.
    pub kept: Vec<(BoxRow, OwnedFd)>,
}

impl Leftovers {
    /// Releases everything that an earlier daemon noted and did not strike: its wardens are waited for and killed where
    /// they hang, and their boxes with them. Empty directories of groups go with the sweep of the next warden, which is
    /// to be started after this.
    ///
    /// One warden that has kept boxes for whoever comes is taken over with them.
    pub fn release(store: &Store, program: &Path) -> Result<Self, StoreError> {
        let (mut killed, mut stuck) = (0, Vec::new());
        let mut inherited: Option<Inheritance> = None;
        for Resource { kind, name, process, boot: then } in store.resources()? {
            let ResourceKind::Warden = kind;
            if let (None, Some((pid, ticks)), Ok(warden)) = (&inherited, process, name.parse())
                && is_this_start(&then)
                && store.has_survivors(&name)?
            {
                let mark = Mark { pid, ticks };
                inherited = Warden::inherit(store.directory.as_fd(), warden, mark, program).ok();
                if inherited.is_some() {
                    continue;
                }
            }
            let ended = match process.filter(|_| is_this_start(&then)) {
                Some((pid, ticks)) => Mark { pid, ticks }.end(PATIENCE),
                None => Ok(Farewell::Absent),
            };
            match ended {
                Ok(Farewell::Absent | Farewell::ByItself) => {}
                Ok(Farewell::Killed) => killed += 1,
                Err(error) => {
                    stuck.push(format!("warden {name}: {error}"));
                    continue;
                }
            }
            store.strike(kind, &name)?;
        }
        // They end in the store when their end is in the ledger: until then every daemon finds them again.
        let (rows, nobodys) = store.unfinished()?;
        let (mut boxes, mut kept, mut on_disk) = (Vec::new(), Vec::new(), Vec::new());
        let (mut warden, held) = inherited.map(|Inheritance { warden, boxes }| (warden, boxes)).unzip();
        let mut held: HashMap<BoxId, OwnedFd> = held.unwrap_or_default().into_iter().collect();
        for row in rows {
            match held.remove(&row.id) {
                Some(channel) if row.is_heritable() => kept.push((row, channel)),
                None if row.state == BoxState::OnDisk => on_disk.push(row),
                // Also one that no channel came for: the warden may have it all the same, and it is about to be called lost.
                Some(_) | None => {
                    held_by_nobody(warden.as_mut(), &row.id);
                    boxes.push(row);
                }
            }
        }
        for id in held.keys() {
            held_by_nobody(warden.as_mut(), id);
        }
        Ok(Self { boxes, nobodys, killed, stuck, warden, on_disk, kept })
    }
}

/// A warden has kept a box that was not somebody's, or was being ended.
fn held_by_nobody(warden: Option<&mut Warden>, id: &BoxId) {
    if let Some(warden) = warden {
        // An error means that it is gone, and the box with it.
        warden.say(Ask::Kill(id.clone())).ok();
    }
}

impl Store {
    /// A box of an earlier daemon is over. One that cannot be written down now is found, and told, once more.
    pub(crate) fn strike_lost(&self, id: &BoxId) {
        self.end_box(id, "lost").ok();
    }

    /// Starts a warden in the place of one that has died. Starting it releases what that one left.
    pub fn replace_warden(&self, program: &std::path::Path) -> Result<Warden, WardenError> {
        let fresh = self.start_warden(program)?;
        self.strike_ended();
        Ok(fresh)
    }

    /// Strikes the wardens whose process has ended. Those that were never noted with a process have none.
    pub fn strike_ended(&self) {
        // By its beginning alone: one that was started a moment ago does not have its name yet.
        let is_there = |(pid, ticks)| Mark::of(pid).is_some_and(|now| now.ticks == ticks);
        for ended in
            self.resources().unwrap_or_default().iter().filter(|row| !row.process.is_some_and(is_there))
        {
            // A row too many costs the next daemon one look.
            self.strike(ended.kind, &ended.name).ok();
        }
    }

    /// Starts a warden that is written down before it is there.
    pub fn start_warden(&self, program: &std::path::Path) -> Result<Warden, WardenError> {
        let recorded = |error: StoreError| WardenError::NotRecorded(io::Error::other(error));
        let name = WardenName::random().map_err(WardenError::NotRecorded)?;
        let text = name.to_string();
        self.note(ResourceKind::Warden, &text).map_err(recorded)?;
        failpoint::reach("warden-noted");
        let warden = match Warden::start_named(program, name) {
            Ok(warden) => warden,
            Err(error) => {
                // Nothing was made; a row too many costs the next daemon one look.
                self.strike(ResourceKind::Warden, &text).ok();
                return Err(error);
            }
        };
        failpoint::reach("warden-started");
        if let Some(Mark { pid, ticks }) = Mark::of(warden.pid()) {
            self.note_process(ResourceKind::Warden, &text, pid, ticks).map_err(recorded)?;
        }
        let mut warden = warden;
        // Without a door no box can be left to anybody: those that ask for that are refused.
        if let Ok(door) = Door::open(self.directory.as_fd(), name) {
            warden.listen_at(&door)?;
        }
        Ok(warden)
    }
}
