//! `/v1/boxes/{id}/files/{list,watch,tar}`: whole directories, as they come.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, TRAILER};
use axum::http::{HeaderValue, Response};
use blastbox_engine::UnpackLimits;
use blastbox_engine::keeper::Keeper;
use blastbox_wire::limits::MAX_LISTED;

use super::files::{Visit, Written, depth, fill, parents};
use crate::answer::Answer;
use crate::caller::Caller;
use crate::take::{BoxPath, Query};
use crate::{Trouble, flow, sse};

const LISTED: u32 = 10_000;
/// An archive is held by the box's disk, not by these. They end one that would keep a processor busy for ever.
const ARCHIVE: UnpackLimits = UnpackLimits { bytes: 1 << 44, entries: 10_000_000 };

pub(crate) async fn list(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
) -> Result<Response<Body>, Trouble> {
    let query = query.only(&["path", "depth", "limit"])?;
    let (path, depth) = (query.path("path")?, query.parsed("depth", "a number")?.unwrap_or(1));
    let most = query.parsed("limit", "a number")?.unwrap_or(LISTED);
    if depth == 0 || most == 0 || most > MAX_LISTED {
        let what = format!("`depth` is at least 1, and `limit` from 1 to {MAX_LISTED}");
        return Err(Trouble::BadQuery(what));
    }
    let visit = Visit::begin(keeper, caller, id)?;
    let listing = visit.live.files().list(&visit.at(&path), depth, most).await?;
    let mut response = Response::new(flow::listing(listing, visit).await?);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Nobody's idleness ends because somebody watches: only what is done counts.
pub(crate) async fn watch(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
) -> Result<Response<Body>, Trouble> {
    let query = query.only(&["path", "recursive"])?;
    let (path, depth) = (query.path("path")?, depth(&query)?);
    let visit = Visit::begin(keeper, caller, id)?;
    Ok(sse::changes(visit.live.files().watch(&visit.at(&path), depth).await?))
}

pub(crate) async fn pack(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
) -> Result<Response<Body>, Trouble> {
    let path = query.only(&["path"])?.path("path")?;
    let visit = Visit::begin(keeper, caller, id)?;
    let mut download = visit.live.files().tar_out(&visit.at(&path)).await?;
    // The first bytes come before the answer: a directory that cannot be read is a no, not half an archive.
    let first = download.next().await?;
    let mut response = Response::new(flow::archive(first, download, visit));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    for trailer in [flow::SKIPPED, flow::LEFT_OUT] {
        headers.append(TRAILER, HeaderValue::from(trailer));
    }
    Ok(response)
}

pub(crate) async fn unpack(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
    body: Body,
) -> Result<Answer<Written>, Trouble> {
    let query = query.only(&["path", "parents"])?;
    let (path, parents) = (query.path("path")?, parents(&query)?);
    let visit = Visit::begin(keeper, caller, id)?;
    let path = visit.at(&path);
    let upload = visit.live.files().tar_in(&path, parents, ARCHIVE).await?;
    fill(upload, path, body, visit).await.map(Answer::ok)
}
