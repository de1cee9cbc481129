//! Snapshots of boxes that run: taken, listed, taken away, begun with.
//!
//! Whose turn it is says [`CopyQueue`](super::copy_queue::CopyQueue), and what may be kept [`Album`](super::album::Album).

use std::sync::Arc;
use std::time::SystemTime;

use blastbox_images::machine::{SnapshotFault, Snapshots, Template};
use blastbox_policy::{SealedPolicy, parse, to_toml};
use blastbox_wire::BoxId;
use blastbox_wire::event::{Event, Hash, Label};
use rustix::rand::{GetRandomFlags, getrandom};

use super::album::{fault, on_thread};
use super::begin::{Inherited, Opened};
use super::cards::Tenant;
use super::copy::{Copied, copy};
use super::error::KeepError;
use super::events::wall_clock;
use super::face::{Keeper, to_its_end};
use super::house::House;
use super::kept::Kept;
use super::make::need_of;
use super::pen;
use super::snapshot_card::{Caption, SnapshotCard};
use super::snapshot_id::SnapshotId;
use super::snapshot_note::{Note, NotedExec, bound, card, list, note_of};
use crate::engine::{Afterwards, Snapshot};
use crate::failpoint;
use crate::store::ExecRow;

fn new_name() -> Result<SnapshotId, KeepError> {
    let mut random = [0_u8; 20];
    getrandom(&mut random, GetRandomFlags::empty())
        .map_err(|errno| KeepError::Failed(crate::error::CreateError::Randomness(errno.into())))?;
    Ok(SnapshotId::from_random(random))
}

impl Keeper {
    /// Writes a box that runs to a file, from which others can begin, with what is to be known of it. It stands still for a
    /// moment, and goes on.
    pub async fn snapshot(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        caption: Option<Caption>,
    ) -> Result<SnapshotCard, KeepError> {
        let kept = self.touch(tenant, id)?;
        let (house, tenant) = (Arc::clone(&self.0), tenant.clone());
        house.engine.may_snapshot(&kept.live, &kept.policy()).map_err(KeepError::Snapshot)?;
        let files = house.album.files()?;
        has_room(&house, &files, &tenant, &kept).await?;
        let turn = house.album.copying.turn(&tenant, id).await?;
        to_its_end(async move {
            let _turn = turn;
            // What others have kept while this one waited.
            has_room(&house, &files, &tenant, &kept).await?;
            let _room = house.room_for_machine(need_of(&kept.policy()).memory).await?;
            let name = new_name()?;
            let Copied { snapshot, execs, inherited, policy, .. } =
                copy(&house, &kept, name.as_str(), Afterwards::GoesOn).await?;
            let Snapshot { template, bound, .. } = snapshot;
            let note = note_down((&kept, &policy), bound, &template, (&execs, inherited), caption, None);
            on_thread(move || {
                let bytes = keep(&files, &name, &note, &template)?;
                failpoint::reach("snapshot-kept");
                Ok(card(name, note, bytes))
            })
            .await
        })
        .await
    }

    /// The snapshots of a tenant, oldest first.
    pub async fn snapshots(&self, tenant: &Tenant) -> Result<Vec<SnapshotCard>, KeepError> {
        let Ok(files) = self.0.album.files() else { return Ok(Vec::new()) };
        let tenant = tenant.clone();
        let turn = self.0.album.reading(&tenant).await;
        let listed = on_thread(move || {
            // What lies on disk because its box is paused is that box.
            let mine =
                list(&files).filter(|(_, note, _)| note.tenant == tenant.as_str() && note.paused.is_none());
            let mut cards: Vec<SnapshotCard> = mine.map(|(id, note, bytes)| card(id, note, bytes)).collect();
            cards.sort_by(|a, b| (&a.created_at, &a.id).cmp(&(&b.created_at, &b.id)));
            Ok((cards, turn))
        });
        listed.await.map(|(cards, _)| cards)
    }

    /// Takes a snapshot away. Boxes that began with it live on.
    pub async fn remove_snapshot(&self, tenant: &Tenant, id: &SnapshotId) -> Result<(), KeepError> {
        let (house, files) = (Arc::clone(&self.0), self.0.album.files()?);
        let (tenant, id) = (tenant.clone(), id.clone());
        on_thread(move || {
            let note = note_of(&files, &tenant, &id)?;
            let about =
                policy_of(&note).map(|policy| pen::about(None, &tenant, &policy, &note.image, None, &[]));
            let (snapshot, of) = (Label::new(id.as_str()), Some(note.of));
            house.pen.announce(about.as_ref(), &Event::SnapshotRemoved { snapshot, of })?;
            if files.remove(id.as_str()).map_err(fault)? { Ok(()) } else { Err(KeepError::NotFound) }
        })
        .await
    }

    /// What a box needs to begin with a snapshot. Its machine is read when that box is made.
    pub async fn open_snapshot(&self, tenant: &Tenant, id: &SnapshotId) -> Result<Opened, KeepError> {
        let files = self.0.album.files()?;
        let (tenant, name) = (tenant.clone(), id.clone());
        let opened = on_thread(move || {
            let note = note_of(&files, &tenant, &name)?;
            let policy = policy_of(&note).ok_or(fault(SnapshotFault::Foreign))?;
            Ok(Opened { policy, image: note.image.clone(), caption: note.caption.clone(), name, note })
        });
        let opened = opened.await;
        if let Err(error @ KeepError::Snapshot(_)) = &opened {
            // Of what cannot be read nobody can say whose it is, or under which policy.
            self.0.pen.announce(None, &Event::BoxRefused { reason: error.code().into() })?;
        }
        opened
    }
}

/// What is written down beside the machine of a box.
pub(super) fn note_down(
    (kept, policy): (&Kept, &SealedPolicy),
    machine: Hash,
    template: &Template,
    (execs, inherited): (&[ExecRow], Vec<Inherited>),
    caption: Option<Caption>,
    paused: Option<u32>,
) -> Note {
    Note {
        tenant: kept.card.tenant.to_string(),
        of: kept.card.id.clone(),
        created_at: wall_clock(SystemTime::now()),
        image: kept.card.image.clone(),
        policy: policy.digest().to_string(),
        policy_text: to_toml(policy),
        level: policy.level(),
        machine,
        memory: template.bytes(),
        execs: execs.iter().map(NotedExec::of).collect(),
        inherited,
        caption,
        paused,
    }
}

/// Writes it all; how many bytes that are.
pub(super) fn keep(
    files: &Snapshots,
    name: &SnapshotId,
    note: &Note,
    template: &Template,
) -> Result<u64, KeepError> {
    // Plain data always becomes JSON.
    let text = serde_json::to_vec(note).unwrap_or_default();
    files.keep(name.as_str(), &text, &bound(name, note), template).map_err(fault)
}

/// Whether this box may be kept, as far as quotas and the disk say.
pub(super) async fn has_room(
    house: &Arc<House>,
    files: &Snapshots,
    tenant: &Tenant,
    kept: &Kept,
) -> Result<(), KeepError> {
    let (house, files, tenant) = (Arc::clone(house), files.clone(), tenant.clone());
    let most = kept.policy().kernel().memory.0;
    let turn = house.album.reading(&tenant).await;
    on_thread(move || {
        let _turn = turn;
        house.album.room(&files, &tenant, most)
    })
    .await
}

/// What may happen in a copy; `None`: it is not what was sealed.
pub(super) fn policy_of(note: &Note) -> Option<SealedPolicy> {
    let policy = parse(&note.policy_text).and_then(|draft| draft.seal()).ok();
    policy.filter(|policy| policy.digest().to_string() == note.policy)
}
