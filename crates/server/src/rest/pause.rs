//! `/v1/boxes/{id}/pause` and `/resume`: where it stands, in memory or on disk, and on again.

use axum::extract::State;
use blastbox_engine::keeper::{BoxCard, Keeper, Tenant};
use blastbox_images::Image;
use blastbox_wire::BoxId;

use crate::answer::Answer;
use crate::ask::open_stored;
use crate::caller::Caller;
use crate::take::{BoxPath, Query};
use crate::{Hall, Trouble};

pub(crate) async fn pause(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
) -> Result<Answer<BoxCard>, Trouble> {
    let paused = match query.only(&["to"])?.text("to") {
        None | Some("memory") => keeper.pause(&caller.tenant, &id).await,
        Some("disk") => keeper.pause_to_disk(&caller.tenant, &id).await,
        Some(_) => return Err(Trouble::BadQuery("`to` is `memory` or `disk`".to_owned())),
    };
    Ok(Answer::ok(paused?))
}

pub(crate) async fn resume(
    State(hall): State<Hall>,
    caller: Caller,
    BoxPath(id): BoxPath,
) -> Result<Answer<BoxCard>, Trouble> {
    let resumed = match image_on_disk(&hall, &caller.tenant, &id).await? {
        Some(image) => hall.keeper.resume_from_disk(&caller.tenant, &id, image).await,
        None => hall.keeper.resume(&caller.tenant, &id).await,
    };
    Ok(Answer::ok(resumed?))
}

/// The image that a box needs to go on from disk; `None`: it does not lie there.
pub(crate) async fn image_on_disk(
    hall: &Hall,
    tenant: &Tenant,
    id: &BoxId,
) -> Result<Option<Image>, Trouble> {
    let Some(label) = hall.keeper.image_on_disk(tenant, id) else { return Ok(None) };
    let images = hall.images.clone();
    let opened = tokio::task::spawn_blocking(move || open_stored(&label, &images)).await;
    opened.unwrap_or(Err(Trouble::Defect)).map(Some)
}
