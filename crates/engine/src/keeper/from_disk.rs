//! A box that lies on disk goes on: made again under its own name, from what its file holds. Until it is there the file stays, and so
//! does the box on disk where it cannot be made.

use std::sync::Arc;

use blastbox_images::Image;
use blastbox_images::machine::SnapshotFault;
use blastbox_policy::SealedPolicy;
use blastbox_wire::BoxId;
use blastbox_wire::event::Event;

use super::album::{fault, on_thread};
use super::begin::{Begin, Itself, Origin};
use super::cards::{BoxCard, Phase, Tenant};
use super::config::NewBox;
use super::error::KeepError;
use super::face::{Keeper, to_its_end};
use super::house::House;
use super::make;
use super::on_disk::OnDisk;
use super::snapshot_note::{Note, NotedExec, any_note};
use crate::engine::SnapshotError;

impl Keeper {
    /// Lets a box go on that was paused to disk, with everything that ran in it. Its image is the one that
    /// [`Keeper::lies_on_disk`] names.
    pub async fn resume_from_disk(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        image: Image,
    ) -> Result<BoxCard, KeepError> {
        let Some(lies) = self.0.on_disk(tenant, id) else {
            // Somebody was faster.
            return Err(self
                .0
                .find(tenant, id)
                .map_or_else(|error| error, |kept| KeepError::WrongPhase(kept.phase())));
        };
        let turn = Arc::clone(&lies.turn).lock_owned().await;
        let house = Arc::clone(&self.0);
        to_its_end(async move {
            let _turn = turn;
            if !house.is_on_disk(lies.id()) {
                return Err(KeepError::WrongPhase(Phase::Ready));
            }
            // Its file goes when the box is there.
            go_on(&house, &lies, image).await
        })
        .await
    }
}

async fn go_on(house: &Arc<House>, lies: &Arc<OnDisk>, image: Image) -> Result<BoxCard, KeepError> {
    let note = read(house, lies).await.inspect_err(|error| refused(house, lies, error))?;
    house.pen.announce(Some(&lies.about()), &Event::BoxResumed)?;
    let BoxCard { metadata, on_timeout, .. } = lies.card();
    let begin = Begin {
        machine: note.machine,
        execs: note.execs.iter().map(NotedExec::row).collect(),
        inherited: note.inherited.clone(),
        from: lies.file().to_string(),
        itself: Some(Itself { lies: Arc::clone(lies), numbers: note.paused.unwrap_or(0) }),
        origin: Origin::Kept(lies.file(), Box::new(note)),
    };
    let new = NewBox {
        policy: SealedPolicy::clone(&lies.policy),
        image: Arc::new(image),
        preparation: None,
        workspace: None,
        volumes: Vec::new(),
        secrets: Vec::new(),
        metadata,
        life: lies.left(),
        idle: lies.deadlines().idle,
        on_timeout,
        from: Some(begin),
    };
    // That it goes on is in the ledger already: so must be that it does not.
    make::make(house, lies.tenant(), new, None).await.inspect_err(|error| refused(house, lies, error))
}

fn refused(house: &House, lies: &OnDisk, error: &KeepError) {
    house.pen.record(&lies.about(), &Event::BoxRefused { reason: error.code().into() });
}

/// What was written down beside its machine. Under the box's name there must be that box.
async fn read(house: &Arc<House>, lies: &Arc<OnDisk>) -> Result<Note, KeepError> {
    let (files, lies) = (house.album.files()?, Arc::clone(lies));
    on_thread(move || {
        let note = match any_note(&files, &lies.file()) {
            Err(KeepError::NotFound) => {
                let why = "its file is not there any more".to_owned();
                return Err(KeepError::Snapshot(SnapshotError::Failed(why)));
            }
            note => note?,
        };
        let is_it = note.paused.is_some()
            && note.of == *lies.id()
            && note.tenant == lies.tenant().as_str()
            && note.policy == lies.policy.digest().to_string();
        if is_it { Ok(note) } else { Err(fault(SnapshotFault::Foreign)) }
    })
    .await
}
