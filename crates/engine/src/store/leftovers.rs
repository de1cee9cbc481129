//! What a killed daemon left, and its release by a new one.

use std::io;
use std::time::Duration;

use blastbox_isolation::{Farewell, Mark, Warden, WardenError, WardenName};
use blastbox_wire::BoxId;

use super::boxes::BoxRow;
use super::error::StoreError;
use super::file::Store;
use super::journal::{Resource, ResourceKind, boot};
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
}

impl Leftovers {
    /// Releases everything that an earlier daemon noted and did not strike: its wardens are waited for and killed where
    /// they hang, and their boxes with them. Empty directories of groups go with the sweep of the next warden, which is
    /// to be started after this.
    pub fn release(store: &Store) -> Result<Self, StoreError> {
        let (mut killed, mut stuck) = (0, Vec::new());
        for Resource { kind, name, process, boot: then } in store.resources()? {
            let ResourceKind::Warden = kind;
            let ended = match process.filter(|_| then == boot()) {
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
        let (boxes, nobodys) = store.unfinished()?;
        Ok(Self { boxes, nobodys, killed, stuck })
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
        Ok(warden)
    }
}
