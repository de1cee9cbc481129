//! Volumes: named directories of a tenant that sandboxes write to, one after the other or at once.
//!
//! - [`shelf`]: which there are, and whose. [`tree`]: what lies in one. [`content`]: the same over HTTP, for whoever has its token.
//! - [`room`]: held in one for what comes. [`draft`]: a file that comes.
//! - [`mounts`]: those that a sandbox shall have. [`watch`]: ends sandboxes whose volumes have outgrown their limit.
//!
//! Trust: caller, and guest: what lies in a volume was written by boxes. Must not: follow a link there, or let a box write
//! anywhere else.

mod content;
mod draft;
mod mounts;
mod room;
mod shelf;
mod tree;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use blastbox_engine::keeper::Tenant;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

pub(super) use self::content::{answer as content, is_content};
pub(super) use self::mounts::{Asked as AskedMount, Mounts, accepted};
use self::shelf::{Parting, Unmade, Volume};
pub(crate) use self::shelf::{Shelf, VolumeLimits};
pub(super) use self::watch::watch;
use super::control::body;
use super::desk::Desk;
use super::no::{No, echo};

const LONGEST_NAME: usize = 128;
/// How long a sandbox that is about to end keeps whoever deletes its volume waiting, and how often it is looked.
const ENDING: Duration = Duration::from_secs(10);
const LOOKS_AGAIN: Duration = Duration::from_millis(20);

/// The volumes of this daemon, where the operator wants some.
pub(super) fn shelf(desk: &Desk) -> Result<&Arc<Shelf>, No> {
    desk.hall().volumes.as_ref().ok_or_else(|| {
        No::new(
            403,
            "volumes are off here: the operator writes [e2b.volumes] into the daemon's configuration to have them",
        )
        .coded("volumes_off")
    })
}

/// `/volumes`.
pub(super) async fn answer(
    desk: &Arc<Desk>,
    tenant: &Tenant,
    (method, parts): (&str, &[&str]),
    request: Request,
) -> Result<Response<Body>, No> {
    let shelf = shelf(desk)?;
    match (method, parts) {
        ("POST", ["volumes"]) => create(desk, shelf, tenant, request).await,
        ("GET", ["volumes"]) => {
            let listed = shelf.of(tenant);
            let listed = listed.iter().map(|volume| json!({ "volumeID": volume.id, "name": volume.name }));
            Ok(show(StatusCode::OK, listed.collect()))
        }
        ("GET", ["volumes", id]) => Ok(show(StatusCode::OK, with_token(&own(shelf, tenant, id)?))),
        ("DELETE", ["volumes", id]) => delete(desk, shelf, tenant, id).await,
        // What else there is the table of endpoints refuses.
        _ => Err(No::defect()),
    }
}

fn show(status: StatusCode, value: Value) -> Response<Body> {
    crate::answer::Answer(status, value).into_response()
}

fn with_token(volume: &Volume) -> Value {
    json!({ "volumeID": volume.id, "name": volume.name, "token": volume.token.show_to_owner() })
}

fn own(shelf: &Shelf, tenant: &Tenant, id: &str) -> Result<Volume, No> {
    shelf.find(Some(tenant), id).ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> No {
    No::new(404, format!("volume \"{}\" not found", echo(id)))
}

#[derive(Debug, Deserialize)]
struct New {
    name: String,
}

async fn create(
    desk: &Desk,
    shelf: &Arc<Shelf>,
    tenant: &Tenant,
    request: Request,
) -> Result<Response<Body>, No> {
    let New { name } = body::read(request).await?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if name.is_empty() || name.len() > LONGEST_NAME || !name.bytes().all(plain) {
        return Err(No::bad(format!(
            "the name of a volume is 1 to {LONGEST_NAME} of a-z, A-Z, 0-9, `_` and `-`"
        )));
    }
    let threads = desk.apart.of(tenant);
    let (on, tenant, called) = (Arc::clone(shelf), tenant.clone(), name.clone());
    match threads.run(move || on.make(&tenant, &called)).await? {
        Ok(volume) => Ok(show(StatusCode::CREATED, with_token(&volume))),
        Err(Unmade::Taken) => Err(No::new(409, format!("there is a volume called \"{name}\" already"))),
        Err(Unmade::Damaged) => Err(No::new(
            409,
            format!("there is a volume called \"{name}\" already, which the operator has to repair"),
        )),
        Err(Unmade::TooMany) => Err(No::new(
            429,
            format!(
                "a key has at most {} volumes: delete one, or have the operator raise it",
                shelf.limits.count
            ),
        )),
        Err(Unmade::Disk(error)) => Err(No::new(500, format!("the volume cannot be made: {error}"))),
    }
}

/// Whether nobody has it but sandboxes that are about to end.
fn is_ending(desk: &Desk, volume: &Volume) -> bool {
    let lives = desk.of(&volume.tenant).iter().any(|(sandbox, _)| sandbox.mounts.has(&volume.id));
    !lives && desk.not_yet_gone(&volume.tenant).iter().any(|sandbox| sandbox.mounts.has(&volume.id))
}

async fn delete(
    desk: &Arc<Desk>,
    shelf: &Arc<Shelf>,
    tenant: &Tenant,
    id: &str,
) -> Result<Response<Body>, No> {
    let volume = own(shelf, tenant, id)?;
    // Whoever was told that its sandbox is gone is not refused because the last of it is still going.
    let given_up = Instant::now() + ENDING;
    while is_ending(desk, &volume) && Instant::now() < given_up {
        sleep(LOOKS_AGAIN).await;
    }
    let threads = desk.apart.of(tenant);
    let (desk, on, of) = (Arc::clone(desk), Arc::clone(shelf), volume.clone());
    let taken_out = threads.run(move || {
        let is_used = || desk.not_yet_gone(&of.tenant).iter().any(|sandbox| sandbox.mounts.has(&of.id));
        let parting = on.take_out(&of.id, is_used);
        if matches!(parting, Ok(Parting::Gone)) {
            // It is gone for everybody; what stays of it after an error goes when the daemon starts again.
            on.clear(&of.id).ok();
        }
        parting
    });
    let name = &volume.name;
    match taken_out.await? {
        Ok(Parting::Gone) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(Parting::Unknown) => Err(unknown(id)),
        Ok(Parting::Used) => {
            let why = format!("volume \"{name}\" is used by a sandbox, or written to: end that first");
            Err(No::new(409, why).coded("volume_in_use"))
        }
        Ok(Parting::Underway) => Err(No::new(409, format!("volume \"{name}\" is about to be deleted"))),
        Err(error) => Err(No::new(500, format!("the volume cannot be deleted: {error}"))),
    }
}
