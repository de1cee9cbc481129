//! What a sandbox says of itself: its variables, and how much it uses.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;

use crate::answer::Answer;
use crate::e2b::control::metrics::measure;
use crate::e2b::desk::Desk;
use crate::e2b::no::No;
use crate::e2b::process::environment;
use crate::e2b::sandbox::Sandbox;

/// `GET /envs`.
pub(super) fn envs(sandbox: &Sandbox) -> Response<Body> {
    Answer(StatusCode::OK, environment::of_sandbox(sandbox)).into_response()
}

/// `GET /metrics`.
pub(super) async fn metrics(desk: &Arc<Desk>, sandbox: &Sandbox) -> Result<Response<Body>, No> {
    let sample = measure(desk, sandbox).await.ok_or_else(|| No::gone(sandbox.id()))?;
    Ok(Answer(StatusCode::OK, sample.show_inside(sandbox)).into_response())
}
