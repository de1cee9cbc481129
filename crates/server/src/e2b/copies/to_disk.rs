//! A sandbox that is paused lies on disk where it is a virtual machine that can: its memory is the host's again. Elsewhere it keeps its
//! memory.

use std::sync::Arc;

use blastbox_engine::SnapshotError;
use blastbox_engine::keeper::{BoxCard, KeepError};
use blastbox_policy::NetworkMode;

use super::portrait::Portrait;
use crate::Internet;
use crate::e2b::desk::Desk;
use crate::e2b::sandbox::Sandbox;

/// Pauses a sandbox. Also where its caller goes away meanwhile.
pub(in crate::e2b) async fn pause(desk: &Arc<Desk>, sandbox: &Arc<Sandbox>) -> Result<(), KeepError> {
    let (desk, sandbox) = (Arc::clone(desk), Arc::clone(sandbox));
    let paused = tokio::spawn(async move { pause_where_it_fits(&desk, &sandbox).await });
    paused.await.unwrap_or(Err(KeepError::Stopping))
}

async fn pause_where_it_fits(desk: &Desk, sandbox: &Arc<Sandbox>) -> Result<(), KeepError> {
    let (keeper, tenant, id) = (desk.keeper(), &sandbox.tenant, &sandbox.box_id);
    if keeper.fits_on_disk(tenant, id) {
        let (portrait, held) = Portrait::of(sandbox, None);
        match keeper.pause_to_disk(tenant, id).await {
            Ok(_) => {
                // Kernels that are let go of end: only now, when there is nothing to end.
                held.let_go();
                sandbox.lies_as(portrait);
                desk.document(sandbox).await;
                return Ok(());
            }
            Err(error @ (KeepError::Gone | KeepError::NotFound | KeepError::WrongPhase(_))) => {
                return Err(error);
            }
            // No room, no turn, no disk: it keeps its memory.
            Err(_) => {}
        }
    }
    keeper.pause(tenant, id).await.map(drop)
}

/// Lets a sandbox go on, wherever it lies.
pub(in crate::e2b) async fn resume(desk: &Desk, sandbox: &Arc<Sandbox>) -> Result<BoxCard, KeepError> {
    let (keeper, tenant, id) = (desk.keeper(), &sandbox.tenant, &sandbox.box_id);
    let Some((label, policy)) = keeper.lies_on_disk(tenant, id) else {
        return keeper.resume(tenant, id).await;
    };
    // The operator may think otherwise by now.
    if policy.network().mode == NetworkMode::Open && desk.hall().internet != Internet::DangerouslyOpen {
        return Err(KeepError::Snapshot(SnapshotError::Reach));
    }
    // An error: its image is not in the store any more.
    let image = desk.image_called(label).await.ok_or(KeepError::Snapshot(SnapshotError::Foreign))?;
    let card = keeper.resume_from_disk(tenant, id, image).await?;
    if let Some(portrait) = sandbox.rises() {
        portrait.hang(keeper, sandbox);
        desk.document(sandbox).await;
    }
    Ok(card)
}
