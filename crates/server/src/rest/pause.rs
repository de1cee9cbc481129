//! `/v1/boxes/{id}/pause` and `/resume`: where it stands, in memory or on disk, and on again.

use axum::extract::State;
use blastbox_engine::keeper::{BoxCard, Keeper};

use crate::answer::Answer;
use crate::ask::{may_begin_again, open_stored};
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
    let resumed = match hall.keeper.lies_on_disk(&caller.tenant, &id) {
        Some((label, policy)) => {
            may_begin_again(&hall, &policy, caller.reach)?;
            let images = hall.images.clone();
            let opened = tokio::task::spawn_blocking(move || open_stored(&label, &images)).await;
            let image = opened.unwrap_or(Err(Trouble::Defect))?;
            hall.keeper.resume_from_disk(&caller.tenant, &id, image).await
        }
        None => hall.keeper.resume(&caller.tenant, &id).await,
    };
    Ok(Answer::ok(resumed?))
}
