//! `/v1/snapshots`, and what makes them: boxes that run, copied with everything that runs in them.

use axum::extract::State;
use axum::http::StatusCode;
use blastbox_engine::keeper::{
    BoxCard, DEFAULT_IDLE, DEFAULT_LIFE, KeepError, Keeper, MOST_FORKS, NewBox as Wanted, SnapshotCard,
    SnapshotId, Unreadable,
};
use blastbox_policy::SealedPolicy;
use serde::Serialize;

use crate::answer::Answer;
use crate::ask::{Forks, NewBox, may_begin_again, open_stored, within};
use crate::caller::{Caller, Reach};
use crate::take::{BoxPath, Given, Query, SnapshotPath};
use crate::{Hall, Trouble};

/// Every snapshot of a tenant, or of all; how many there are is bounded.
#[derive(Debug, Serialize)]
pub(crate) struct All {
    snapshots: Vec<SnapshotCard>,
    /// Files that nobody can read; only where those of all tenants were asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<Unreadable>,
}

/// Boxes that were made at once.
#[derive(Debug, Serialize)]
pub(crate) struct Forked {
    boxes: Vec<BoxCard>,
}

pub(crate) async fn take(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
) -> Result<Answer<SnapshotCard>, Trouble> {
    Ok(Answer::created(keeper.snapshot(&caller.tenant, &id, None).await?))
}

pub(crate) async fn list(
    State(keeper): State<Keeper>,
    caller: Caller,
    query: Query,
) -> Result<Answer<All>, Trouble> {
    let all = query.only(&["all"])?.flag("all", false)?;
    if all && caller.reach != Reach::Host {
        return Err(Trouble::LocalOnly("with a key, only the snapshots of its tenant can be seen"));
    }
    let (snapshots, unreadable) = if all {
        keeper.snapshots_of_all().await?
    } else {
        (keeper.snapshots(&caller.tenant).await?, Vec::new())
    };
    Ok(Answer::ok(All { snapshots, unreadable }))
}

pub(crate) async fn remove(
    State(keeper): State<Keeper>,
    caller: Caller,
    SnapshotPath(id): SnapshotPath,
) -> Result<StatusCode, Trouble> {
    let removed = match keeper.remove_snapshot(&caller.tenant, &id).await {
        // Another tenant's, or nobody can say whose it is, and it takes room: it is the operator's.
        Err(KeepError::Snapshot(_) | KeepError::NotFound) if caller.reach == Reach::Host => {
            keeper.remove_any_snapshot(&id).await
        }
        removed => removed,
    };
    removed.map_err(no_snapshot)?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn fork(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    Given(Forks { count, life, idle }): Given<Forks>,
) -> Result<Answer<Forked>, Trouble> {
    let count = count.unwrap_or(1);
    if !(1..=MOST_FORKS).contains(&count) {
        return Err(Trouble::BadField(format!("`count` is out of range; permitted is 1 to {MOST_FORKS}")));
    }
    let (life, idle) = (within("life", life, DEFAULT_LIFE)?, within("idle", idle, DEFAULT_IDLE)?);
    let boxes = keeper.fork(&caller.tenant, &id, count, life, idle).await?;
    Ok(Answer::created(Forked { boxes }))
}

/// A box that begins with a snapshot. Policy and image are the snapshot's, so that nothing in it gains by being copied.
pub(crate) async fn begin(
    hall: &Hall,
    caller: &Caller,
    id: &SnapshotId,
    new: NewBox,
) -> Result<Wanted, Trouble> {
    new.says_nothing_of_its_kind()?;
    let opened = hall.keeper.open_snapshot(&caller.tenant, id).await.map_err(no_snapshot)?;
    may_begin_again(hall, &opened.policy, caller.reach)?;
    let (images, label) = (hall.images.clone(), opened.image.clone());
    let policy: SealedPolicy = opened.policy.clone();
    let made = tokio::task::spawn_blocking(move || {
        let image = open_stored(&label, &images)?;
        new.with(policy, image)
    });
    let wanted = made.await.unwrap_or(Err(Trouble::Defect))?;
    Ok(opened.begin(wanted))
}

/// What is somebody else's is not there.
fn no_snapshot(error: KeepError) -> Trouble {
    match error {
        KeepError::NotFound => Trouble::NotFound("snapshot"),
        error => error.into(),
    }
}
