//! `/v1/boxes/{id}/files`: one file or entry at a time.
//!
//! Paths are the box's own, relative ones from where its commands start, and are only ever resolved inside it, by its agent, as its user: `..` and links lead nowhere
//! else. Content is passed on piece by piece in both directions, however large it is.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use blastbox_engine::keeper::{Keeper, Tenant};
use blastbox_engine::{LiveBox, Slice, Upload};
use blastbox_wire::BoxId;
use blastbox_wire::agent::{Depth, Links, Parents, Target, Writing};
use serde::Serialize;

use crate::answer::Answer;
use crate::caller::Caller;
use crate::entry::{EntryView, Name};
use crate::take::{BoxPath, Query, drain, patient_piece};
use crate::{Trouble, flow, start_place};

const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
/// A box that is written to or read from is not idle; this often is often enough to say so.
const TOUCH: Duration = Duration::from_secs(5);

/// A box whose files somebody is at.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(crate) live: Arc<LiveBox>,
    keeper: Keeper,
    tenant: Tenant,
    id: BoxId,
    touched: Instant,
}

impl Visit {
    pub(crate) fn begin(keeper: Keeper, caller: Caller, id: BoxId) -> Result<Self, Trouble> {
        let live = keeper.live(&caller.tenant, &id)?;
        Ok(Self { live, keeper, tenant: caller.tenant, id, touched: Instant::now() })
    }

    /// What a path of the caller means.
    pub(crate) fn at(&self, path: &[u8]) -> Vec<u8> {
        start_place::path(&self.live, path)
    }

    /// Another piece went by.
    pub(crate) fn touch(&mut self) {
        if self.touched.elapsed() >= TOUCH {
            self.touched = Instant::now();
            // A box that is ending says so itself.
            self.keeper.live(&self.tenant, &self.id).ok();
        }
    }
}

/// How much went in, and where.
#[derive(Debug, Serialize)]
pub(crate) struct Written {
    bytes: u64,
    #[serde(flatten)]
    path: Name,
}

/// How much is gone.
#[derive(Debug, Serialize)]
pub(crate) struct Removed {
    entries: u64,
}

pub(crate) fn parents(query: &Query) -> Result<Parents, Trouble> {
    Ok(if query.flag("parents", false)? { Parents::Make } else { Parents::Expect })
}

pub(crate) fn depth(query: &Query) -> Result<Depth, Trouble> {
    Ok(if query.flag("recursive", false)? { Depth::All } else { Depth::One })
}

fn mode(query: &Query, absent: u32) -> Result<u32, Trouble> {
    let Some(text) = query.text("mode") else { return Ok(absent) };
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| Trouble::BadQuery("the parameter `mode` is not octal from 0 to 777".to_owned()))
}

pub(crate) async fn read(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
) -> Result<Response<Body>, Trouble> {
    let query = query.only(&["path", "offset", "length"])?;
    let path = query.path("path")?;
    let offset: u64 = query.parsed("offset", "a number")?.unwrap_or(0);
    let most: u64 = query.parsed("length", "a number")?.unwrap_or(u64::MAX);
    let visit = Visit::begin(keeper, caller, id)?;
    let download = visit.live.files().read(&visit.at(&path), Slice { offset, most, ..Slice::WHOLE }).await?;
    let size = download.entry().map_or(0, |entry| entry.size);
    let mut response = Response::new(flow::download(download, visit));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // A file that becomes shorter meanwhile breaks the answer off: nobody takes half of it for the whole.
    headers.insert(CONTENT_LENGTH, HeaderValue::from(size.saturating_sub(offset).min(most)));
    Ok(response)
}

pub(crate) async fn write(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
    body: Body,
) -> Result<Answer<Written>, Trouble> {
    let query = query.only(&["path", "mode", "parents", "if_exists"])?;
    let (path, mode, parents) = (query.path("path")?, mode(&query, FILE_MODE)?, parents(&query)?);
    let writing = match query.text("if_exists") {
        None | Some("replace") => Writing::Replace,
        Some("fail") => Writing::New,
        Some("append") => Writing::Append,
        Some("truncate") => Writing::Truncate,
        Some(_) => {
            let known = "the parameter `if_exists` is not one of replace, fail, append, truncate";
            return Err(Trouble::BadQuery(known.to_owned()));
        }
    };
    let visit = Visit::begin(keeper, caller, id)?;
    let path = visit.at(&path);
    let upload = visit.live.files().write(&path, mode, writing, parents).await?;
    fill(upload, path, body, visit).await.map(Answer::ok)
}

/// Passes a body on as it comes, and no faster than the box takes it. A caller that breaks off leaves nothing half done:
/// dropping the upload is what tells the box.
pub(crate) async fn fill(
    mut upload: Upload,
    path: Vec<u8>,
    mut body: Body,
    mut visit: Visit,
) -> Result<Written, Trouble> {
    while let Some(piece) = patient_piece(&mut body).await? {
        if let Err(error) = upload.write(&piece).await {
            // Whoever is still sending would see a broken line instead of the reason.
            drain(&mut body).await;
            return Err(error.into());
        }
        visit.touch();
    }
    Ok(Written { bytes: upload.finish().await?.amount, path: path.into() })
}

pub(crate) async fn remove(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
) -> Result<Answer<Removed>, Trouble> {
    let query = query.only(&["path", "recursive"])?;
    let (path, depth) = (query.path("path")?, depth(&query)?);
    let visit = Visit::begin(keeper, caller, id)?;
    Ok(Answer::ok(Removed { entries: visit.live.files().remove(&visit.at(&path), depth).await? }))
}

pub(crate) async fn stat(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
) -> Result<Answer<EntryView>, Trouble> {
    let query = query.only(&["path", "follow"])?;
    let links = if query.flag("follow", false)? { Links::Follow } else { Links::Keep };
    let path = query.path("path")?;
    let visit = Visit::begin(keeper, caller, id)?;
    Ok(Answer::ok(visit.live.files().stat(&visit.at(&path), links).await?.into()))
}

pub(crate) async fn make_directory(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
) -> Result<StatusCode, Trouble> {
    let query = query.only(&["path", "mode", "parents"])?;
    let (path, mode, parents) = (query.path("path")?, mode(&query, DIRECTORY_MODE)?, parents(&query)?);
    let visit = Visit::begin(keeper, caller, id)?;
    visit.live.files().make_directory(&visit.at(&path), mode, parents).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub(crate) async fn rename(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
    query: Query,
) -> Result<StatusCode, Trouble> {
    let query = query.only(&["path", "to", "replace", "parents"])?;
    let (from, to, parents) = (query.path("path")?, query.path("to")?, parents(&query)?);
    let target = if query.flag("replace", true)? { Target::Replace } else { Target::Fresh };
    let visit = Visit::begin(keeper, caller, id)?;
    visit.live.files().rename(&visit.at(&from), &visit.at(&to), target, parents).await?;
    Ok(StatusCode::NO_CONTENT)
}
