//! The life of a sandbox: kill, timeout, refresh, connect, pause, resume.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use blastbox_engine::keeper::{BoxCard, KeepError, Phase, Tenant};
use serde::Deserialize;
use serde_json::json;

use super::{Generation, body, empty, show};
use crate::e2b::copies;
use crate::e2b::desk::{Desk, PAUSED_FOR};
use crate::e2b::moment;
use crate::e2b::no::No;
use crate::e2b::sandbox::Sandbox;

/// What connect, resume and refresh assume where no time is given.
const CONNECT: i64 = 300;
const RESUME: i64 = 15;
const REFRESH: i64 = 15;
const MOST_REFRESH: i64 = 3_600;
const UNHEALTHY: &str = "requireHealthyGuest is true, and its agent gives no sign of life";

#[derive(Debug, Deserialize)]
struct Timeout {
    timeout: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct Refresh {
    duration: Option<i64>,
}

#[derive(Debug, Deserialize)]
struct Waking {
    timeout: Option<i64>,
    memory: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pausing {
    memory: Option<bool>,
    require_healthy_guest: Option<bool>,
}

/// `DELETE /sandboxes/{id}`.
pub(super) async fn kill(desk: &Desk, tenant: &Tenant, id: &str) -> Result<Response<Body>, No> {
    let (sandbox, _) = desk.own(tenant, id)?;
    let killed = desk.keeper().kill(tenant, &sandbox.box_id).await;
    killed.map_err(|error| No::kept(&error, id))?;
    Ok(empty())
}

/// `POST /sandboxes/{id}/timeout`: so long from now, which may be sooner than before.
pub(super) async fn timeout(
    desk: &Desk,
    tenant: &Tenant,
    id: &str,
    request: Request,
) -> Result<Response<Body>, No> {
    let Timeout { timeout } = body::read(request).await?;
    let asked = timeout.ok_or_else(|| No::bad("timeout is missing"))?;
    let life = body::seconds("timeout", asked)?;
    let (sandbox, card) = desk.own(tenant, id)?;
    if card.phase == Phase::Paused {
        // Its time does not run.
        return Err(No::no_sandbox(id));
    }
    set(desk, &sandbox, life)?;
    Ok(empty())
}

/// `POST /sandboxes/{id}/refreshes`: at least so long from now.
pub(super) async fn refresh(
    desk: &Desk,
    tenant: &Tenant,
    id: &str,
    request: Request,
) -> Result<Response<Body>, No> {
    let Refresh { duration } = body::read(request).await?;
    let asked = duration.unwrap_or(REFRESH);
    if !(0..=MOST_REFRESH).contains(&asked) {
        return Err(No::bad(format!("duration = {asked} is out of range; permitted is 0 to {MOST_REFRESH}")));
    }
    let (sandbox, card) = desk.own(tenant, id)?;
    extend(desk, &sandbox, &card, body::seconds("duration", asked)?)?;
    Ok(empty())
}

/// `POST /sandboxes/{id}/connect`: 200 where it ran, 201 where it had to be resumed.
pub(super) async fn connect(
    desk: &Desk,
    tenant: &Tenant,
    id: &str,
    request: Request,
    generation: Generation,
) -> Result<Response<Body>, No> {
    let Waking { timeout, memory } = body::read(request).await?;
    let asked = match (timeout, generation) {
        (Some(timeout), _) => timeout,
        (None, Generation::Second) => CONNECT,
        (None, Generation::First) => return Err(No::bad("timeout is missing")),
    };
    let life = body::seconds("timeout", asked)?;
    let (sandbox, card) = desk.own(tenant, id)?;
    if card.phase == Phase::Paused {
        with_memory(memory)?;
        if desk.resume(&sandbox, life).await.map_err(|error| No::kept(&error, id))? {
            return Ok(super::json(StatusCode::CREATED, show::sandbox(desk, &sandbox)));
        }
    }
    extend(desk, &sandbox, &card, life)?;
    Ok(super::json(StatusCode::OK, show::sandbox(desk, &sandbox)))
}

/// `POST /sandboxes/{id}/resume`, as older clients call it.
pub(super) async fn resume(
    desk: &Desk,
    tenant: &Tenant,
    id: &str,
    request: Request,
) -> Result<Response<Body>, No> {
    let Waking { timeout, memory } = body::read(request).await?;
    let life = body::seconds("timeout", timeout.unwrap_or(RESUME))?;
    let (sandbox, _) = desk.own(tenant, id)?;
    with_memory(memory)?;
    match desk.resume(&sandbox, life).await {
        Ok(true) => Ok(super::json(StatusCode::CREATED, show::sandbox(desk, &sandbox))),
        Ok(false) => Err(No::new(409, format!("sandbox \"{id}\" is running already"))),
        Err(error) => Err(No::kept(&error, id)),
    }
}

/// `POST /sandboxes/{id}/pause`.
pub(super) async fn pause(
    desk: &Arc<Desk>,
    tenant: &Tenant,
    id: &str,
    request: Request,
) -> Result<Response<Body>, No> {
    let Pausing { memory, require_healthy_guest } = body::read(request).await?;
    let (sandbox, _) = desk.own(tenant, id)?;
    with_memory(memory)?;
    let paused = match require_healthy_guest {
        Some(true) => match desk.keeper().answers(tenant, &sandbox.box_id).await {
            // Without a code: the SDKs take the one that E2B has for a snapshot that cannot be resumed.
            Ok(false) => return Err(No::new(503, format!("sandbox \"{id}\" goes on: {UNHEALTHY}"))),
            Ok(true) => copies::pause(desk, &sandbox).await,
            Err(error) => Err(error),
        },
        Some(false) | None => copies::pause(desk, &sandbox).await,
    };
    match paused {
        Ok(()) => {
            // A paused sandbox waits; its own time begins anew when it goes on. An error: somebody woke it or ended it.
            desk.keeper().set_deadline(tenant, &sandbox.box_id, PAUSED_FOR).ok();
            Ok(empty())
        }
        Err(KeepError::WrongPhase(Phase::Paused)) => {
            Err(No::new(409, format!("sandbox \"{id}\" is paused already")))
        }
        Err(error) => Err(No::kept(&error, id)),
    }
}

/// A sandbox is paused and goes on with its memory, or not at all: what was asked for is never quietly something else.
fn with_memory(memory: Option<bool>) -> Result<(), No> {
    match memory {
        Some(false) => {
            Err(No::bad("memory: false is refused: blastbox pauses and resumes a sandbox with its memory"))
        }
        Some(true) | None => Ok(()),
    }
}

fn set(desk: &Desk, sandbox: &Sandbox, life: Duration) -> Result<(), No> {
    let set = desk.keeper().set_deadline(&sandbox.tenant, &sandbox.box_id, life);
    set.map_err(|error| No::kept(&error, sandbox.id()))?;
    sandbox.set_life(life);
    sandbox.note("info", "timeout set", json!({ "seconds": life.as_secs() }));
    Ok(())
}

/// Never shortens a life.
fn extend(desk: &Desk, sandbox: &Sandbox, card: &BoxCard, life: Duration) -> Result<(), No> {
    let wanted = moment::millis(SystemTime::now() + life);
    if moment::parse(&card.ends_at).is_some_and(|ends| ends >= wanted) {
        return Ok(());
    }
    set(desk, sandbox, life)
}
