//! `/v1/boxes/{id}/execs`: run commands, listen to them, signal them.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode};
use blastbox_engine::keeper::{Keeper, TapeReader, Tenant};
use blastbox_wire::BoxId;
use serde::Serialize;

use crate::answer::Answer;
use crate::ask::{Checked, NewExec, Signal, TerminalSize};
use crate::caller::Caller;
use crate::take::{BoxPath, ExecPath, Given, Query};
use crate::{Trouble, sse, start_place};

/// Signals have these numbers on Linux.
pub(crate) const SIGNALS: std::ops::RangeInclusive<u8> = 1..=64;

/// A command that was given to a box.
#[derive(Debug, Serialize)]
pub(crate) struct Begun {
    pub(crate) exec: u32,
}

pub(crate) async fn create(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    Given(new): Given<NewExec>,
) -> Result<Answer<Begun>, Trouble> {
    begin(&keeper, &caller.tenant, &id, new.check()?).await.map(Answer::created)
}

pub(crate) async fn begin(
    keeper: &Keeper,
    tenant: &Tenant,
    id: &BoxId,
    checked: Checked,
) -> Result<Begun, Trouble> {
    let live = keeper.live(tenant, id)?;
    let (command, terms) = checked.start(start_place::of(&live));
    Ok(Begun { exec: keeper.exec_within(tenant, id, command, terms).await? })
}

pub(crate) async fn events(
    State(keeper): State<Keeper>,
    caller: Caller,
    ExecPath(id, exec): ExecPath,
    query: Query,
    headers: HeaderMap,
) -> Result<Response<Body>, Trouble> {
    let query = query.only(&["after", "slow", "follow"])?;
    let after = match sse::last_seen(&headers)? {
        Some(place) => Some(place),
        None => query.parsed("after", "a number")?,
    };
    let reader = held(keeper.tape(&caller.tenant, &id, exec, after)?, &query)?;
    Ok(sse::tape(reader, sse::Until::from(&query)?))
}

/// A reader for which the command waits, unless the caller would rather lose something.
pub(crate) fn held(reader: TapeReader, query: &Query) -> Result<TapeReader, Trouble> {
    match query.text("slow") {
        None | Some("hold") => Ok(reader.hold_back()),
        Some("drop") => Ok(reader.let_pass()),
        Some(_) => Err(Trouble::BadQuery("the parameter `slow` is `hold` or `drop`".to_owned())),
    }
}

pub(crate) async fn signal(
    State(keeper): State<Keeper>,
    caller: Caller,
    ExecPath(id, exec): ExecPath,
    Given(Signal { signal }): Given<Signal>,
) -> Result<StatusCode, Trouble> {
    if !SIGNALS.contains(&signal) {
        return Err(Trouble::BadField("`signal` is out of range; permitted is 1 to 64".to_owned()));
    }
    keeper.signal(&caller.tenant, &id, exec, signal).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn resize(
    State(keeper): State<Keeper>,
    caller: Caller,
    ExecPath(id, exec): ExecPath,
    Given(TerminalSize { rows, columns }): Given<TerminalSize>,
) -> Result<StatusCode, Trouble> {
    keeper.resize(&caller.tenant, &id, exec, rows, columns).await?;
    Ok(StatusCode::NO_CONTENT)
}
