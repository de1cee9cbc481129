//! `POST /files/compose`: several files of the box become one, and are gone. The one appears whole or not at all.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse as _;
use blastbox_engine::{FileError, LiveBox, Slice, Upload};
use blastbox_wire::agent::{Depth, Fault, Links, Parents, User, Writing};
use serde::Deserialize;
use serde_json::json;

use super::{file_trouble, paths, user_named};
use crate::answer::Answer;
use crate::e2b::control::body;
use crate::e2b::desk::Desk;
use crate::e2b::no::{No, echo};
use crate::e2b::sandbox::Sandbox;

/// Files of one request.
const MOST: usize = 1_000;
/// Names on the way to all of them. Each may have to be looked at, one after the other.
const MOST_NAMES: usize = 10_000;
/// Bytes of names that are remembered meanwhile: the daemon's memory is everybody's, and a short path may lead to a long one.
const REMEMBERED: usize = 1 << 20;
const MODE: u32 = 0o644;

#[derive(Debug, Deserialize)]
struct Asked {
    source_paths: Vec<String>,
    destination: String,
    username: Option<String>,
}

pub(super) async fn compose(
    desk: &Arc<Desk>,
    sandbox: &Arc<Sandbox>,
    request: Request,
) -> Result<Response<Body>, No> {
    let Asked { source_paths, destination, username } = body::read(request).await?;
    let user = user_named(sandbox, username.as_deref())?;
    if source_paths.is_empty() || source_paths.len() > MOST {
        return Err(No::bad(format!("source_paths has 1 to {MOST} paths")));
    }
    let resolve = |path: &str| {
        let path = Some(path).filter(|path| !path.is_empty()).ok_or_else(|| No::bad("a path is empty"))?;
        paths::resolve(path, user).map_err(|_| No::bad("a path may not begin with another user's home"))
    };
    let sources = source_paths.iter().map(|path| resolve(path)).collect::<Result<Vec<_>, _>>()?;
    let destination = resolve(&destination)?;
    let names = |path: &String| path.split('/').count();
    if sources.iter().chain([&destination]).map(names).sum::<usize>() > MOST_NAMES {
        return Err(No::bad(format!(
            "source_paths and destination have at most {MOST_NAMES} names on their way"
        )));
    }
    let work = Composing { live: desk.live(sandbox)?, user, sandbox: Arc::clone(sandbox) };
    // Also where its caller goes away meanwhile: sources are gone only when all is in its place, and then all of them are.
    let composed = tokio::spawn(async move {
        work.write(&sources, &destination).await?;
        work.remove(&sources, &destination).await?;
        Ok(json!({ "path": destination, "name": paths::name(&destination), "type": "file" }))
    });
    let entry = composed.await.unwrap_or_else(|_| Err(No::defect()))?;
    Ok(Answer(StatusCode::OK, entry).into_response())
}

/// Directories that were looked at, and where they are.
#[derive(Default)]
struct Known {
    places: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl Known {
    fn remember(&mut self, at: Vec<u8>, found: &[u8]) {
        let bytes = self.bytes.saturating_add(at.len()).saturating_add(found.len());
        if bytes <= REMEMBERED {
            self.bytes = bytes;
            self.places.insert(at, found.to_vec());
        }
    }
}

struct Composing {
    live: Arc<LiveBox>,
    user: User,
    sandbox: Arc<Sandbox>,
}

impl Composing {
    fn failed(&self, path: &str) -> impl Fn(FileError) -> No {
        move |error| file_trouble(&error, path, self.sandbox.id())
    }

    /// Writes all of it beside its place, under a name that nobody in the box knows before, and puts it there.
    async fn write(&self, sources: &[String], destination: &str) -> Result<(), No> {
        let files = self.live.files_as(self.user);
        let upload = files.write(destination.as_bytes(), MODE, Writing::Replace, Parents::Make).await;
        let mut upload: Upload = upload.map_err(self.failed(destination))?;
        for source in sources {
            let mut from = files.read(source.as_bytes(), Slice::WHOLE).await.map_err(self.failed(source))?;
            while let Some(bytes) = from.next().await.map_err(self.failed(source))? {
                upload.write(&bytes).await.map_err(self.failed(destination))?;
            }
        }
        upload.finish().await.map_err(self.failed(destination))?;
        self.sandbox.marks.removed(destination);
        Ok(())
    }

    async fn remove(&self, sources: &[String], destination: &str) -> Result<(), No> {
        let mut known = Known::default();
        let result = self.real(destination, &mut known).await?;
        // All of them first: where one cannot be told from the result, none is gone.
        let mut others = Vec::new();
        for source in sources {
            if self.real(source, &mut known).await? != result {
                others.push(source);
            }
        }
        for source in others {
            match self.live.files_as(self.user).remove(source.as_bytes(), Depth::One).await {
                // Named twice, or gone meanwhile: it is as it should be.
                Err(error) if error.fault() != Some(Fault::NotFound) => {
                    return Err(self.failed(source)(error));
                }
                Ok(_) | Err(_) => self.sandbox.marks.removed(source),
            }
        }
        Ok(())
    }

    /// The same place without links on the way: two paths may lead to one file. Its last name is not followed, as neither who writes nor
    /// who removes follows it.
    async fn real(&self, path: &str, known: &mut Known) -> Result<Vec<u8>, No> {
        let mut real = Vec::new();
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
        for (place, name) in names.iter().enumerate() {
            if *name == ".." {
                let above = real.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                real.truncate(above);
                continue;
            }
            let next = [real.as_slice(), b"/", name.as_bytes()].concat();
            if place + 1 == names.len() {
                return Ok(next);
            }
            real = match known.places.get(&next) {
                Some(found) => found.clone(),
                None => {
                    let found = self.beyond(&next).await?;
                    known.remember(next, &found);
                    found
                }
            };
        }
        Ok(real)
    }

    /// Where a directory is that may be a link to one.
    async fn beyond(&self, at: &[u8]) -> Result<Vec<u8>, No> {
        let path = String::from_utf8_lossy(at);
        let entry = match self.live.files_as(self.user).stat(at, Links::Keep).await {
            // Then nothing is there to be removed.
            Err(error) if error.fault() == Some(Fault::NotFound) => return Ok(at.to_vec()),
            found => found.map_err(self.failed(&path))?,
        };
        let Some(link) = entry.link else { return Ok(at.to_vec()) };
        link.beyond.map(|beyond| beyond.path).filter(|path| !path.is_empty()).ok_or_else(|| {
            No::new(
                500,
                format!(
                    "the files became one, and none was removed: where \"{}\" leads cannot be told",
                    echo(&path)
                ),
            )
        })
    }
}
