//! `/v1/boxes`: make, show, end.

use std::sync::Arc;

use axum::extract::State;
use blastbox_engine::keeper::{BoxCard, ExecCard, Keeper, NewBox as Wanted};
use blastbox_wire::receipt::Receipt;
use serde::Serialize;

use crate::answer::Answer;
use crate::ask::{Deadline, NewBox, checked_life};
use crate::caller::Caller;
use crate::modules::Lease;
use crate::page::{self, Page};
use crate::rest::{modules, snapshots};
use crate::take::{BoxPath, Given, Query};
use crate::{Hall, Trouble};

/// A box and the commands in it.
#[derive(Debug, Serialize)]
pub(crate) struct Whole {
    #[serde(flatten)]
    card: BoxCard,
    execs: Vec<ExecCard>,
}

pub(crate) async fn create(
    State(hall): State<Hall>,
    caller: Caller,
    Given(new): Given<NewBox>,
) -> Result<Answer<BoxCard>, Trouble> {
    let (wanted, _lease) = check(&hall, &caller, new).await?;
    // A caller that goes away meanwhile leaves nothing: the keeper sees to that.
    Ok(Answer::created(hall.keeper.create(&caller.tenant, wanted).await?))
}

/// Holds what is asked for against what there is, and opens what it names. What comes with it is held until the box has begun.
pub(crate) async fn check(
    hall: &Hall,
    caller: &Caller,
    mut new: NewBox,
) -> Result<(Wanted, Option<Arc<Lease>>), Trouble> {
    new.one_source()?;
    if let Some(id) = new.snapshot.clone() {
        return Ok((snapshots::begin(hall, caller, &id, new).await?, None));
    }
    let Some(module) = modules::named(&mut new) else { return Ok((open(hall, caller, new).await?, None)) };
    let mut wanted = open(hall, caller, new).await?;
    let lease = modules::give(hall, caller, &module, &mut wanted).await?;
    Ok((wanted, Some(lease)))
}

/// On a thread of its own: a directory on a dead file server must hold up nobody else. Where nothing was named there is nothing to open
/// but this host's own root, and another thread would cost more than the look.
async fn open(hall: &Hall, caller: &Caller, new: NewBox) -> Result<Wanted, Trouble> {
    let (images, reach) = (hall.images.clone(), caller.reach);
    let roots = hall.roots.get(&caller.tenant).cloned().unwrap_or_default();
    if new.names_nothing() {
        return new.check(reach, &images, &roots);
    }
    let checked = tokio::task::spawn_blocking(move || new.check(reach, &images, &roots)).await;
    checked.unwrap_or(Err(Trouble::Defect))
}

pub(crate) async fn list(
    State(keeper): State<Keeper>,
    caller: Caller,
    query: Query,
) -> Result<Answer<Page>, Trouble> {
    let wanted = page::Wanted::from(&query.only(&["limit", "cursor"])?)?;
    Ok(Answer::ok(page::cut(keeper.list(&caller.tenant), &wanted)))
}

pub(crate) async fn show(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
) -> Result<Answer<Whole>, Trouble> {
    let (card, execs) = keeper.get(&caller.tenant, &id)?;
    Ok(Answer::ok(Whole { card, execs }))
}

pub(crate) async fn end(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
) -> Result<Answer<Receipt>, Trouble> {
    Ok(Answer::ok(keeper.kill(&caller.tenant, &id).await?))
}

/// What became of a box that is gone, for as long as the keeper remembers.
pub(crate) async fn receipt(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
) -> Result<Answer<Receipt>, Trouble> {
    let found = keeper.receipt(&caller.tenant, &id);
    found.map(|receipt| Answer::ok(Receipt::clone(&receipt))).ok_or(Trouble::NotFound("receipt"))
}

pub(crate) async fn deadline(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    Given(Deadline { life }): Given<Deadline>,
) -> Result<Answer<BoxCard>, Trouble> {
    Ok(Answer::ok(keeper.set_deadline(&caller.tenant, &id, checked_life(life)?)?))
}
