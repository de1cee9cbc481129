//! Snapshots of all tenants, for the operator alone: whoever fills the disk can be seen, and what nobody wants any more be taken away.

use std::sync::Arc;

use blastbox_wire::event::{Event, Label};

use super::album::{fault, on_thread};
use super::cards::Tenant;
use super::error::KeepError;
use super::face::Keeper;
use super::pen;
use super::snapshot_card::{SnapshotCard, Unreadable};
use super::snapshot_id::SnapshotId;
use super::snapshot_note::{any_note, card, list};
use super::snapshots::policy_of;

impl Keeper {
    /// The snapshots of every tenant, oldest first, with boxes that are paused to disk; and the files that nobody can read.
    pub async fn snapshots_of_all(&self) -> Result<(Vec<SnapshotCard>, Vec<Unreadable>), KeepError> {
        let Ok(files) = self.0.album.files() else { return Ok((Vec::new(), Vec::new())) };
        on_thread(move || {
            let mut cards: Vec<_> = list(&files).map(|(id, note, bytes)| card(id, note, bytes)).collect();
            cards.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
            let unread = files.names().into_iter().filter_map(|name| {
                let id: SnapshotId = name.parse().ok()?;
                match any_note(&files, &id) {
                    Err(error @ KeepError::Snapshot(_)) => {
                        Some(Unreadable { bytes: files.length(&name), id, why: error.code() })
                    }
                    Ok(_) | Err(_) => None,
                }
            });
            let unread = unread.collect();
            Ok((cards, unread))
        })
        .await
    }

    /// Takes a snapshot away, whosever it is, or of which nobody can say. A box that is paused to disk is not: its owner kills it.
    pub async fn remove_any_snapshot(&self, id: &SnapshotId) -> Result<(), KeepError> {
        let (house, files, id) = (Arc::clone(&self.0), self.0.album.files()?, id.clone());
        on_thread(move || {
            let (about, of) = match any_note(&files, &id) {
                Ok(note) if note.paused.is_some() => return Err(KeepError::NotFound),
                Ok(note) => {
                    let tenant: Option<Tenant> = note.tenant.parse().ok();
                    let policy = tenant.zip(policy_of(&note));
                    let about = policy
                        .map(|(tenant, policy)| pen::about(None, &tenant, &policy, &note.image, None, &[]));
                    (about, Some(note.of))
                }
                Err(KeepError::Snapshot(_)) => (None, None),
                Err(error) => return Err(error),
            };
            let snapshot = Label::new(id.as_str());
            house.pen.announce(about.as_ref(), &Event::SnapshotRemoved { snapshot, of })?;
            if files.remove(id.as_str()).map_err(fault)? { Ok(()) } else { Err(KeepError::NotFound) }
        })
        .await
    }
}
