//! What is written down beside the machine of a snapshot: whose it is, of which box, and what ran in that.

use std::io;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use blastbox_images::machine::{SnapshotFault, Snapshots};
use blastbox_policy::ThreatLevel;
use blastbox_wire::BoxId;
use blastbox_wire::event::Hash;
use serde::{Deserialize, Serialize};

use super::album::fault;
use super::begin::Inherited;
use super::cards::Tenant;
use super::error::KeepError;
use super::snapshot_card::{Caption, SnapshotCard};
use super::snapshot_id::SnapshotId;

use crate::store::ExecRow;

/// What is written down beside a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) tenant: String,
    pub(super) of: BoxId,
    pub(super) created_at: String,
    pub(super) image: String,
    pub(super) policy: String,
    pub(super) policy_text: String,
    pub(super) level: ThreatLevel,
    pub(super) machine: Hash,
    pub(super) memory: u64,
    pub(super) execs: Vec<NotedExec>,
    #[serde(default)]
    pub(super) inherited: Vec<Inherited>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) caption: Option<Caption>,
    /// Of a box that is paused to disk, whose machine nobody else begins with: the last number that a command of it had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) paused: Option<u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct NotedExec {
    number: u32,
    program: String,
    arguments: u32,
    terminal: bool,
    started_at: u64,
}

/// Every snapshot that can be read, by name, one after the other: what is written on one may be a megabyte. One that cannot be read
/// is named when somebody asks for it.
pub(super) fn list(files: &Snapshots) -> impl Iterator<Item = (SnapshotId, Note, u64)> {
    let read = move |name: String| {
        let id: SnapshotId = name.parse().ok()?;
        let (note, bytes) = files.note(&name).ok()??;
        Some((id, serde_json::from_slice(&note).ok()?, bytes))
    };
    files.names().into_iter().filter_map(read)
}

/// The boxes that lie on disk in this directory of snapshots, each with the label of the image that it needs to go on: for whoever
/// takes images away without asking a keeper. What cannot be read may be one of them, and is an error with its name.
pub fn paused_in(place: &Path) -> io::Result<Vec<(BoxId, String)>> {
    let listed = match std::fs::read_dir(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed?,
    };
    let files = Snapshots::at(place);
    let mut paused = Vec::new();
    for entry in listed {
        let entry = entry?;
        let Some(name) = files.named(&entry.file_name()) else { continue };
        let unread = |why: &dyn std::fmt::Display| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{name} may be a box that is paused and cannot be read ({why}): `blastbox snapshot rm {name}`, or `kill` of its box, takes it away"
                ),
            )
        };
        let note = match files.note(&name) {
            Err(SnapshotFault::Place(error)) => return Err(error),
            Err(fault) => return Err(unread(&fault)),
            // It is gone since it was listed.
            Ok(None) => continue,
            Ok(Some((note, _))) => note,
        };
        let note: Note = serde_json::from_slice(&note).map_err(|error| unread(&error))?;
        paused.extend(note.paused.is_some().then_some((note.of, note.image)));
    }
    Ok(paused)
}

pub(super) fn card(id: SnapshotId, note: Note, bytes: u64) -> SnapshotCard {
    let Note { tenant, of, created_at, image, policy, level, memory, caption, paused, .. } = note;
    let paused = paused.is_some();
    SnapshotCard { id, tenant, of, paused, created_at, image, policy, level, memory, bytes, caption }
}

/// What a file is bound to: the machine, and whose box under which policy that was.
pub(super) fn bound(id: &SnapshotId, note: &Note) -> Hash {
    let words = ["snapshot", id.as_str(), &note.tenant, &note.policy, &note.machine.to_string()];
    Hash::of_command(&words.map(|word| word.as_bytes().to_vec()))
}

impl NotedExec {
    pub(super) fn of(row: &ExecRow) -> Self {
        let since = row.started_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            number: row.number,
            program: row.program.clone(),
            arguments: row.arguments,
            terminal: row.terminal,
            started_at: since.as_secs(),
        }
    }

    pub(super) fn row(&self) -> ExecRow {
        let Self { number, program, arguments, terminal, started_at } = self.clone();
        let started_at = UNIX_EPOCH + Duration::from_secs(started_at.min(1 << 40));
        // What is left of its own time is told besides: the clock on which it ends stood still.
        ExecRow { number, program, arguments, terminal, started_at, ends_up: None, ended: None }
    }
}

/// What is written down of a snapshot, where it is this tenant's.
pub(super) fn note_of(files: &Snapshots, tenant: &Tenant, id: &SnapshotId) -> Result<Note, KeepError> {
    let note = any_note(files, id)?;
    // A box that lies on disk is no snapshot: there is one of it.
    if note.tenant == tenant.as_str() && note.paused.is_none() { Ok(note) } else { Err(KeepError::NotFound) }
}

/// The same, whosever it is.
pub(super) fn any_note(files: &Snapshots, id: &SnapshotId) -> Result<Note, KeepError> {
    let (note, _) = files.note(id.as_str()).map_err(fault)?.ok_or(KeepError::NotFound)?;
    serde_json::from_slice(&note).map_err(|_| fault(SnapshotFault::Foreign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_is_not_there_holds_no_box_and_one_that_cannot_be_read_may_hold_some() {
        let place = std::env::temp_dir().join(format!("blastbox-paused-{}", std::process::id()));
        assert!(paused_in(&place).unwrap().is_empty());
        std::fs::write(&place, "no directory").unwrap();
        let unread = paused_in(&place);
        std::fs::remove_file(&place).unwrap();
        assert!(unread.is_err());
    }

    #[test]
    fn a_file_that_cannot_be_understood_may_be_a_paused_box_and_is_named() {
        let place = std::env::temp_dir().join(format!("blastbox-unread-{}", std::process::id()));
        std::fs::create_dir(&place).unwrap();
        let memory = blastbox_images::machine::blank(1 << 20).unwrap();
        let machine = blastbox_images::machine::Template::seal(memory, b"state".to_vec()).unwrap();
        let files = Snapshots::at(&place);
        let read = |name: &str| {
            let read = paused_in(&place).map_err(|error| error.to_string());
            files.remove(name).unwrap();
            read
        };
        std::fs::write(place.join("notes.txt"), "no snapshot").unwrap();
        assert_eq!(read("sn_other"), Ok(Vec::new()));
        std::fs::write(place.join("sn_short.snapshot"), "blastbox").unwrap();
        assert!(read("sn_short").unwrap_err().contains("sn_short"));
        files.keep("sn_odd", b"{}", &Hash::from_bytes([1; 32]), &machine).unwrap();
        assert!(read("sn_odd").unwrap_err().contains("sn_odd"));
        std::fs::remove_dir_all(&place).unwrap();
    }
}
