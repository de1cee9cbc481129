//! Pausing a box to disk, and taking away one that lies there.
//!
//! ```text
//! runs ── asleep, copied ──► stands still ── file whole, written down ──► ended; its file is all that is left of it
//!                                └── no room, no disk, no store ──► goes on
//! ```

use std::sync::Arc;

use blastbox_policy::SealedPolicy;
use blastbox_wire::BoxId;
use blastbox_wire::event::{Event, KilledBy};
use blastbox_wire::receipt::Receipt;
use tokio::time::timeout;

use super::album::{fault, on_thread};
use super::begin::Inherited;
use super::cards::{BoxCard, Tenant};
use super::cause::Cause;
use super::copy::{Copied, copy};
use super::error::KeepError;
use super::events::Happened;
use super::face::{ACKNOWLEDGED, Keeper, to_its_end};
use super::house::House;
use super::kept::Kept;
use super::make::need_of;
use super::on_disk::OnDisk;
use super::snapshot_id::SnapshotId;
use super::snapshots::{has_room, keep, note_down};
use crate::engine::{Afterwards, Snapshot};
use crate::failpoint;
use crate::outcome::Ending;
use crate::paper::{Account, receipt};
use crate::store::{BoxState, ExecRow};

impl Keeper {
    /// Writes a box that runs to a file, and gives back its memory and processes. [`Keeper::resume_from_disk`] lets it go on, with
    /// everything that ran in it, also of a later keeper of the same store. One that cannot be written goes on as if nobody had asked.
    pub async fn pause_to_disk(&self, tenant: &Tenant, id: &BoxId) -> Result<BoxCard, KeepError> {
        let kept = self.touch(tenant, id)?;
        let house = Arc::clone(&self.0);
        house.engine.may_snapshot(&kept.live, &kept.policy()).map_err(KeepError::Snapshot)?;
        let files = house.album.files()?;
        has_room(&house, &files, tenant, &kept).await?;
        let turn = house.album.copying.turn(tenant, id).await?;
        to_its_end(async move {
            has_room(&house, &files, &kept.card.tenant, &kept).await?;
            let room = house.room_for_machine(need_of(&kept.policy()).memory).await?;
            write_and_leave(&house, &kept).await?;
            drop((room, turn));
            house.has_left(&kept.card.id).await;
            house.on_disk(&kept.card.tenant, &kept.card.id).map(|lies| lies.card()).ok_or(KeepError::Gone)
        })
        .await
    }

    /// Whether a box could be paused to disk, as far as that can be said without trying.
    #[must_use]
    pub fn fits_on_disk(&self, tenant: &Tenant, id: &BoxId) -> bool {
        let kept = self.0.find(tenant, id).ok();
        kept.is_some_and(|kept| self.0.engine.may_snapshot(&kept.live, &kept.policy()).is_ok())
            && self.0.album.files().is_ok()
    }

    /// The label of the image of a box that lies on disk, and the policy under which it would go on: what is needed for that, and
    /// whether it still may, is its caller's to find out. `None`: it does not lie there.
    #[must_use]
    pub fn lies_on_disk(&self, tenant: &Tenant, id: &BoxId) -> Option<(String, Arc<SealedPolicy>)> {
        self.0.on_disk(tenant, id).map(|lies| (lies.card().image, Arc::clone(&lies.policy)))
    }

    /// The labels of the images that boxes need which lie on disk, and whose boxes they are.
    #[must_use]
    pub fn images_on_disk(&self) -> Vec<(Tenant, String)> {
        self.0.images_on_disk()
    }
}

/// From here on the box is what its file holds; or it goes on.
async fn write_and_leave(house: &Arc<House>, kept: &Arc<Kept>) -> Result<(), KeepError> {
    let name = SnapshotId::of_box(&kept.card.id);
    let copied = copy(house, kept, name.as_str(), Afterwards::StandsStill).await?;
    let Copied { snapshot, execs, inherited, policy, whole } = copied;
    let written = write(house, (kept, &policy), name, snapshot, (&execs, inherited)).await;
    let left = match written {
        Ok(()) if kept.leave_for_disk() => Ok(()),
        // It was killed, or its time was over, meanwhile.
        Ok(()) => {
            house.album.forget(&kept.card.id).await;
            Err(KeepError::Gone)
        }
        Err(error) => {
            house.album.forget(&kept.card.id).await;
            house.engine.go_on(&kept.live).await;
            house.write_deadlines(kept);
            Err(if kept.live.is_stopped() { KeepError::Gone } else { error })
        }
    };
    drop(whole);
    left
}

async fn write(
    house: &Arc<House>,
    (kept, policy): (&Arc<Kept>, &SealedPolicy),
    name: SnapshotId,
    Snapshot { template, bound, .. }: Snapshot,
    commands: (&[ExecRow], Vec<Inherited>),
) -> Result<(), KeepError> {
    let note = note_down((kept, policy), bound, &template, commands, None, Some(kept.live.last_number()));
    let files = house.album.files()?;
    on_thread(move || keep(&files, &name, &note, &template).map(drop)).await?;
    failpoint::reach("box-written");
    let lies = OnDisk::of(kept);
    house.register.on_disk(&kept.card.id, &lies.deadlines())
}

/// Takes away a box that lies on disk.
pub(super) async fn kill(house: Arc<House>, lies: Arc<OnDisk>) -> Result<Receipt, KeepError> {
    let turn = Arc::clone(&lies.turn).lock_owned().await;
    // Whoever was before may have let it go on, or taken it away.
    if !house.is_on_disk(lies.id()) {
        return Err(KeepError::Gone);
    }
    house.pen.record(&lies.about(), &Event::KillAsked { by: KilledBy::Caller });
    house.album.take_away(lies.id()).await?;
    // From here on the next daemon asks the ledger whether its end is told: it is told once.
    house.register.moved(lies.id(), BoxState::Ending);
    let receipt = last_receipt(&house, &lies);
    let ended = Event::BoxEnded { outcome: receipt.outcome, spent: receipt.usage };
    let told = receipt.clone();
    let telling = tokio::spawn(async move {
        let _turn = turn;
        let post = house.pen.post();
        let heard = match house.pen.record_end(&lies.about(), &ended).await {
            Ok(Some(seq)) if post.must_acknowledge() => post.acknowledged(seq).await,
            Ok(_) => Ok(()),
            Err(unheard) => Err(unheard),
        };
        if heard.is_err() {
            // The next daemon misses its file, and tells that it is gone.
            house.leave_disk(&lies, None);
            return Err(KeepError::Unacknowledged);
        }
        house.register.gone(lies.id(), told.outcome.as_str());
        house.leave_disk(&lies, Some(&told));
        let what = Happened::BoxEnded { outcome: told.outcome, reason: Cause::Killed.code().to_owned() };
        house.hub.tell(Some((lies.tenant(), lies.id())), what);
        Ok(())
    });
    match timeout(ACKNOWLEDGED, telling).await {
        Ok(Ok(told)) => told.map(|()| receipt),
        Ok(Err(_)) => Err(KeepError::Stopping),
        Err(_) => Err(KeepError::Unacknowledged),
    }
}

/// What it used was told when it was paused; since then that is nothing.
fn last_receipt(house: &House, lies: &OnDisk) -> Receipt {
    let card = lies.card();
    let mut receipt = receipt(&Account {
        policy: &lies.policy,
        image: card.image.clone(),
        facts: house.engine.facts(),
        choice: None,
        box_id: Some(card.id.clone()),
        arguments: &[],
        started: lies.made_at,
        ending: Ending::Dismissed,
        usage: None,
        ended: None,
    });
    receipt.tier = Some(card.tier);
    Cause::Killed.reword(&mut receipt.reason);
    receipt
}

impl super::album::Album {
    /// Removes the file of a box that does not lie on disk any more. What cannot be removed is swept when the next keeper begins.
    pub(super) async fn forget(&self, id: &BoxId) {
        self.take_away(id).await.ok();
    }

    /// The same, for whoever has to know that it is gone.
    async fn take_away(&self, id: &BoxId) -> Result<(), KeepError> {
        let (files, name) = (self.files()?, SnapshotId::of_box(id));
        on_thread(move || files.remove(name.as_str()).map(drop).map_err(fault)).await
    }
}
