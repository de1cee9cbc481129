//! What tells about the daemon: health, numbers, events, and this API itself.

use std::sync::OnceLock;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Response};
use blastbox_engine::keeper::{Keeper, Tenant};
use blastbox_isolation::Walls;
use serde::Serialize;

use crate::answer::Answer;
use crate::caller::{Caller, Reach};
use crate::take::Query;
use crate::{Trouble, openapi, routes, sse};

/// That the daemon answers, and which one it is.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
}

pub(crate) async fn health() -> Answer<Health> {
    Answer::ok(Health { status: "ok", version: env!("CARGO_PKG_VERSION") })
}

/// The daemon itself.
#[derive(Debug, Serialize)]
pub(crate) struct Daemon {
    version: &'static str,
    pid: u32,
    walls: Walls,
    /// What is not as it should be, by name.
    missing: Vec<&'static str>,
}

/// What the kernel says of the daemon, now. For whoever sits at the socket: a key is for boxes.
pub(crate) async fn daemon(caller: Caller) -> Result<Answer<Daemon>, Trouble> {
    if caller.reach != Reach::Host {
        return Err(Trouble::LocalOnly("with a key, nothing is told of the daemon itself"));
    }
    let walls = Walls::read().map_err(|_| Trouble::Defect)?;
    let missing = walls.missing();
    Ok(Answer::ok(Daemon { version: env!("CARGO_PKG_VERSION"), pid: std::process::id(), walls, missing }))
}

pub(crate) async fn metrics(State(keeper): State<Keeper>, _: Caller) -> Result<Response<Body>, Trouble> {
    let mut response = Response::new(Body::from(keeper.metrics().to_prometheus()));
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    Ok(response)
}

/// A tenant hears of its own boxes; whoever sits at the socket may hear of all.
pub(crate) async fn events(
    State(keeper): State<Keeper>,
    caller: Caller,
    query: Query,
    headers: HeaderMap,
) -> Result<Response<Body>, Trouble> {
    let query = query.only(&["after", "alerts", "all", "follow"])?;
    let after = seen(&query, &headers)?;
    let whose = tenant(&query, &caller)?;
    let which = if query.flag("alerts", false)? { sse::Which::Alerts } else { sse::Which::All };
    Ok(sse::events(keeper.subscribe_after(whose.as_ref(), after), sse::Until::from(&query)?, which))
}

/// The last event that was seen.
pub(super) fn seen(query: &Query, headers: &HeaderMap) -> Result<Option<u64>, Trouble> {
    match sse::last_seen(headers)? {
        Some(seen) => Ok(Some(seen)),
        None => query.parsed("after", "a number"),
    }
}

/// Whose events are heard: the caller's, or everybody's.
pub(super) fn tenant(query: &Query, caller: &Caller) -> Result<Option<Tenant>, Trouble> {
    match (query.parsed("all", "`true` or `false`")?, caller.reach) {
        (Some(true), Reach::Host) => Ok(None),
        (Some(true), Reach::Boxes) => {
            Err(Trouble::LocalOnly("with a key, only events of its own tenant can be heard"))
        }
        (Some(false) | None, _) => Ok(Some(caller.tenant.clone())),
    }
}

/// Written once: it is for everybody, and does not change.
pub(crate) async fn document() -> Response<Body> {
    static PAPER: OnceLock<String> = OnceLock::new();
    let paper = PAPER.get_or_init(|| openapi::document(&routes::all()).to_string());
    let mut response = Response::new(Body::from(paper.as_str()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
