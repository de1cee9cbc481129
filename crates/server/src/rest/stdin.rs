//! `/v1/boxes/{id}/execs/{exec}/stdin`: bytes for a command, as they come.
//!
//! The body may stay open for as long as the command runs: a keyboard is slow. It is let go when the command is over,
//! and a command that does not read holds up its caller, never the daemon's memory.

use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use blastbox_engine::keeper::{KeepError, Keeper, Tenant};
use blastbox_wire::BoxId;
use tokio::time::timeout;

use crate::Trouble;
use crate::caller::Caller;
use crate::take::{ExecPath, piece};

/// How often a silent caller's command is looked at.
const LOOK: Duration = Duration::from_secs(5);

pub(crate) async fn write(
    State(keeper): State<Keeper>,
    caller: Caller,
    ExecPath(id, exec): ExecPath,
    mut body: Body,
) -> Result<StatusCode, Trouble> {
    runs(&keeper, &caller.tenant, &id, exec)?;
    loop {
        let bytes = match timeout(LOOK, piece(&mut body)).await {
            Ok(bytes) => bytes?,
            Err(_) => {
                runs(&keeper, &caller.tenant, &id, exec)?;
                continue;
            }
        };
        let Some(bytes) = bytes else { return Ok(StatusCode::NO_CONTENT) };
        keeper.write_stdin(&caller.tenant, &id, exec, &bytes).await?;
    }
}

fn runs(keeper: &Keeper, tenant: &Tenant, id: &BoxId, exec: u32) -> Result<(), Trouble> {
    let (_, execs) = keeper.get(tenant, id)?;
    match execs.iter().find(|card| card.exec == exec) {
        None => Err(Trouble::NotFound("command")),
        Some(card) if card.ended.is_some() => Err(KeepError::CommandOver.into()),
        Some(_) => Ok(()),
    }
}

pub(crate) async fn end(
    State(keeper): State<Keeper>,
    caller: Caller,
    ExecPath(id, exec): ExecPath,
) -> Result<StatusCode, Trouble> {
    keeper.end_stdin(&caller.tenant, &id, exec).await?;
    Ok(StatusCode::NO_CONTENT)
}
