//! The control plane: REST about sandboxes, in both generations that SDKs speak.

pub(super) mod body;
pub(super) mod create;
mod headers;
mod life;
mod list;
mod logs;
pub(super) mod metrics;
pub(super) mod network;
pub(super) mod once;
pub(super) mod page;
mod rules;
pub(super) mod show;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde_json::Value;

use super::desk::Desk;
use super::no::No;
use super::{copies, edge, endpoints, secrets, templates, volumes};

/// Which generation of a call was made: they differ in what is assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generation {
    First,
    Second,
}

/// Answers a request of the control plane.
pub(super) async fn answer(desk: &Arc<Desk>, request: Request) -> Result<Response<Body>, No> {
    use Generation::{First, Second};
    let (method, parts) = edge::parts(&request);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let known = endpoints::check(endpoints::CONTROL, method.as_str(), &parts);
    if let ["health"] = parts.as_slice() {
        return known.map(|()| empty());
    }
    if templates::is_upload(method.as_str(), &parts) {
        return templates::upload(desk, &parts, request).await;
    }
    if volumes::is_content(&parts) {
        return volumes::content(desk, &parts, request).await;
    }
    let caller = edge::caller(&request)?;
    let tenant = &caller.tenant;
    known?;
    match (method.as_str(), parts.as_slice()) {
        ("POST", ["v2", "sandboxes"]) => create::create(desk, tenant, request, Second).await,
        ("POST", ["sandboxes"]) => create::create(desk, tenant, request, First).await,
        ("GET", ["v2", "sandboxes"]) => list::list(desk, tenant, request.uri().query(), Second),
        ("GET", ["sandboxes"]) => list::list(desk, tenant, request.uri().query(), First),
        ("GET", ["sandboxes", "metrics"]) => metrics::many(desk, tenant, request.uri().query()).await,
        ("GET", ["sandboxes", id]) => show::detail(desk, tenant, id),
        ("DELETE", ["sandboxes", id]) => life::kill(desk, tenant, id).await,
        ("POST", ["sandboxes", id, "timeout"]) => life::timeout(desk, tenant, id, request).await,
        ("POST", ["sandboxes", id, "refreshes"]) => life::refresh(desk, tenant, id, request).await,
        ("POST", ["sandboxes", id, "pause"]) => life::pause(desk, tenant, id, request).await,
        ("POST", ["sandboxes", id, "resume"]) => life::resume(desk, tenant, id, request).await,
        ("POST", ["sandboxes", id, "connect"]) => life::connect(desk, tenant, id, request, First).await,
        ("POST", ["v2", "sandboxes", id, "connect"]) => {
            life::connect(desk, tenant, id, request, Second).await
        }
        ("PUT", ["sandboxes", id, "network"]) => rules::replace(desk, tenant, id, request).await,
        ("GET", ["sandboxes", id, "metrics"]) => metrics::one(desk, tenant, id, request.uri().query()).await,
        ("GET", ["sandboxes", id, "logs"]) => logs::show(desk, tenant, id, request.uri().query(), First),
        ("GET", ["v2", "sandboxes", id, "logs"]) => {
            logs::show(desk, tenant, id, request.uri().query(), Second)
        }
        ("POST", ["sandboxes", id, "snapshots"]) => copies::take(desk, tenant, id, request).await,
        ("POST", ["sandboxes", id, "fork"]) => copies::fork(desk, tenant, id, request).await,
        ("GET", ["snapshots"]) => copies::list(desk, tenant, request.uri().query()).await,
        // `tags` is a route of templates, whatever a snapshot is called.
        ("DELETE", ["templates", id]) if *id != "tags" => match copies::find(desk, tenant, id).await? {
            Some(card) => copies::remove(desk, tenant, &card, id).await,
            None => templates::answer(desk, tenant, ("DELETE", &["templates", id]), request).await,
        },
        (method, parts @ (["templates" | "default-templates", ..] | ["v2" | "v3", "templates", ..])) => {
            templates::answer(desk, tenant, (method, parts), request).await
        }
        (method, parts @ ["volumes", ..]) => volumes::answer(desk, tenant, (method, parts), request).await,
        (method, parts @ ["secrets", ..]) => secrets::answer(desk, tenant, (method, parts), request).await,
        // The table has it, and nobody here: a defect that its test finds.
        _ => Err(No::defect()),
    }
}

/// 204.
fn empty() -> Response<Body> {
    StatusCode::NO_CONTENT.into_response()
}

/// JSON with a status.
fn json(status: StatusCode, value: Value) -> Response<Body> {
    crate::answer::Answer(status, value).into_response()
}
