//! What a box begins as that is no box of its kind which ran nothing: a snapshot, or a box that is forked.

use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::SealedPolicy;
use blastbox_wire::event::Hash;
use serde::{Deserialize, Serialize};

use super::admission::Room;
use super::album::open;
use super::config::NewBox;
use super::error::KeepError;
use super::house::House;
use super::on_disk::OnDisk;
use super::snapshot_card::Caption;
use super::snapshot_id::SnapshotId;
use super::snapshot_note::{Note, NotedExec};
use crate::engine::{Snapshot, Whose};
use crate::store::ExecRow;

/// What a box begins as, instead of as one of its kind that ran nothing.
#[derive(Debug, Clone)]
pub struct Begin {
    /// What a copy relies on.
    pub(crate) machine: Hash,
    /// The commands that ran in it, as they were written down.
    pub(super) execs: Vec<ExecRow>,
    /// What else a copy has to know of them.
    pub(super) inherited: Vec<Inherited>,
    /// A snapshot's name, or a box's: for the ledger.
    pub(super) from: String,
    /// The box that it is, where it is no copy.
    pub(super) itself: Option<Itself>,
    pub(super) origin: Origin,
}

/// A box that was paused to disk and goes on.
#[derive(Debug, Clone)]
pub(crate) struct Itself {
    pub(crate) lies: Arc<OnDisk>,
    /// The last number that a command of it had.
    pub(crate) numbers: u32,
}

#[derive(Debug, Clone)]
pub(super) enum Origin {
    /// A box that sleeps no more, and the room of its machine.
    Taken(Snapshot, Arc<Room>),
    /// A file, of which only the note was read.
    Kept(SnapshotId, Box<Note>),
}

/// The same, with a machine that is there.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) snapshot: Snapshot,
    pub(crate) execs: Vec<ExecRow>,
    pub(crate) inherited: Vec<Inherited>,
    pub(crate) from: String,
    pub(crate) itself: Option<Itself>,
    /// That of the machine, which all of its copies share. `None`: it is a template, and those have room of their own.
    pub(crate) room: Option<Arc<Room>>,
}

impl Begin {
    /// Reads and checks the machine. It takes as much memory as the box may have: only for one that was let in.
    pub(crate) async fn open(self, house: &Arc<House>) -> Result<Begun, KeepError> {
        let Self { machine, execs, inherited, from, itself, origin } = self;
        let (snapshot, room) = match origin {
            Origin::Taken(snapshot, room) => (snapshot, Some(room)),
            Origin::Kept(name, note) => {
                let (template, room) = open(house, name, *note).await?;
                (Snapshot { template, bound: machine, whose: Whose::Owners }, Some(room))
            }
        };
        Ok(Begun { snapshot, execs, inherited, from, itself, room })
    }
}

impl Opened {
    /// A box of this kind, which begins with the snapshot.
    #[must_use]
    pub fn begin(self, new: NewBox) -> NewBox {
        let Self { name, note, .. } = self;
        let begin = Begin {
            machine: note.machine,
            execs: note.execs.iter().map(NotedExec::row).collect(),
            inherited: note.inherited.clone(),
            from: name.to_string(),
            itself: None,
            origin: Origin::Kept(name, Box::new(note)),
        };
        NewBox { from: Some(begin), ..new }
    }
}

/// A snapshot, opened: everything that a box needs to begin with it.
#[derive(Debug)]
pub struct Opened {
    /// What may happen in it, as it was.
    pub policy: SealedPolicy,
    /// The image, by name and digest, as it was.
    pub image: String,
    /// What was written on it.
    pub caption: Option<Caption>,
    pub(super) name: SnapshotId,
    pub(super) note: Note,
}

/// What a copy of a box has to know of a command that runs in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inherited {
    pub(crate) number: u32,
    /// What was left of its own time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<u64>,
    /// It carried bytes between the box and somebody who is not at the other end of the copy.
    #[serde(default)]
    pub(crate) carrier: bool,
}

impl Inherited {
    pub(crate) fn new(number: u32, left: Option<Duration>, carrier: bool) -> Self {
        let left = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        Self { number, left, carrier }
    }

    /// What was left of its own time.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.left.map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_commands_time_goes_into_a_file_and_comes_out_again() {
        let limited = Inherited::new(3, Some(Duration::from_millis(1_500)), false);
        let text = serde_json::to_string(&limited).unwrap();
        let read: Inherited = serde_json::from_str(&text).unwrap();
        assert_eq!((read.left(), &read), (Some(Duration::from_millis(1_500)), &limited));
        // One without a time of its own, and a file of before.
        assert_eq!(Inherited::new(1, None, true).left(), None);
        assert_eq!(
            serde_json::from_str::<Inherited>(r#"{"number":1}"#).unwrap(),
            Inherited::new(1, None, false)
        );
    }
}
