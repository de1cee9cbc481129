//! `POST /files`: bytes into files of the box, as fast as the box takes them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::response::IntoResponse;
use blastbox_engine::{LiveBox, Upload};
use blastbox_wire::agent::{Depth, Fault, Links, Parents, User, Writing};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout, timeout_at};

use super::gzip::Swell;
use super::marks::{self, Mark};
use super::multipart::{self, Found, Parts};
use super::{file_trouble, paths};
use crate::answer::Answer;
use crate::e2b::desk::Desk;
use crate::e2b::no::No;
use crate::e2b::sandbox::Sandbox;

/// How long a client may be silent in the middle of an upload: it has no limit of its own.
const IDLE: Duration = Duration::from_secs(60);
/// How long the rest of a body that was refused is still taken, so that the client hears why.
const DRAIN: Duration = Duration::from_secs(30);
/// What a new file may be read and written by.
const MODE: u32 = 0o644;
/// Files of one request.
const MOST_FILES: usize = 10_000;

pub(super) async fn upload(
    desk: &Arc<Desk>,
    sandbox: &Sandbox,
    user: User,
    path: Option<&str>,
    request: Request,
) -> Result<Response<Body>, No> {
    let (parts, mut body) = request.into_parts();
    let done = receive(desk, sandbox, user, path, &parts.headers, &mut body).await;
    if done.is_err() {
        drain(&mut body).await;
    }
    Ok(Answer(StatusCode::OK, done?).into_response())
}

async fn receive(
    desk: &Arc<Desk>,
    sandbox: &Sandbox,
    user: User,
    path: Option<&str>,
    headers: &HeaderMap,
    body: &mut Body,
) -> Result<Vec<Value>, No> {
    let mark = marks::from_headers(headers)?;
    let live = desk.live(sandbox)?;
    let mut desk = Receiving { sandbox, live, user, mark, seen: BTreeSet::new(), written: Vec::new() };
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let packed = match headers.get(CONTENT_ENCODING).map(|coding| coding.as_bytes().to_ascii_lowercase()) {
        None => false,
        Some(coding) => match coding.as_slice() {
            b"" | b"identity" => false,
            b"gzip" => true,
            _ => return Err(No::bad("Content-Encoding is not gzip")),
        },
    };
    if let Some(boundary) = multipart::boundary(kind) {
        if packed {
            return Err(No::bad("multipart/form-data cannot be compressed as a whole"));
        }
        let boundary = boundary.map_err(malformed)?;
        desk.parts(path, Parts::new(&boundary), body).await?;
    } else if is_octets(kind) {
        let path = path.filter(|path| !path.is_empty()).ok_or_else(|| No::bad("path is missing"))?;
        desk.octets(path, packed, body).await?;
    } else {
        return Err(No::bad("the content type is neither multipart/form-data nor application/octet-stream"));
    }
    if desk.written.is_empty() {
        return Err(No::bad("there is no part named `file` in the request"));
    }
    Ok(desk.written)
}

fn is_octets(kind: &str) -> bool {
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/octet-stream")
}

fn malformed(error: multipart::Malformed) -> No {
    No::bad(format!("the body is no multipart body: {}", error.0))
}

/// The next piece of a body.
async fn next(body: &mut Body) -> Result<Option<Bytes>, No> {
    loop {
        match timeout(IDLE, body.frame()).await {
            Err(_) => return Err(No::new(408, "the upload was silent for too long")),
            Ok(None) => return Ok(None),
            Ok(Some(Err(_))) => return Err(No::bad("the body broke off")),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(bytes) if !bytes.is_empty() => return Ok(Some(bytes)),
                Ok(_) | Err(_) => {}
            },
        }
    }
}

/// A client that is still sending would hear of a broken connection, and not why.
async fn drain(body: &mut Body) {
    let deadline = Instant::now() + DRAIN;
    while let Ok(Some(Ok(_))) = timeout_at(deadline, body.frame()).await {}
}

/// An upload that is coming in.
struct Receiving<'a> {
    sandbox: &'a Sandbox,
    live: Arc<LiveBox>,
    user: User,
    mark: Mark,
    seen: BTreeSet<String>,
    written: Vec<Value>,
}

/// A file that is being written.
struct Open {
    path: String,
    upload: Upload,
    /// Whether it was there before: what an upload that failed has made goes away again.
    fresh: bool,
}

impl Receiving<'_> {
    async fn parts(&mut self, path: Option<&str>, mut parts: Parts, body: &mut Body) -> Result<(), No> {
        let mut open = None;
        let all = self.each_part(path, &mut parts, body, &mut open).await;
        if let (Err(_), Some(open)) = (&all, open) {
            self.abandon(open).await;
        }
        all
    }

    async fn each_part(
        &mut self,
        path: Option<&str>,
        parts: &mut Parts,
        body: &mut Body,
        open: &mut Option<Open>,
    ) -> Result<(), No> {
        while let Some(piece) = next(body).await? {
            parts.add(&piece);
            while let Some(found) = parts.next().map_err(malformed)? {
                match found {
                    Found::Part(head) if head.name.as_deref() == Some("file") => {
                        let target = path.filter(|path| !path.is_empty()).map(ToOwned::to_owned);
                        let target = target.or(head.file_name).filter(|target| !target.is_empty());
                        let target =
                            target.ok_or_else(|| No::bad("a file has no name, and path is missing"))?;
                        *open = Some(self.open(&target).await?);
                    }
                    Found::Part(_) => *open = None,
                    Found::Bytes(bytes) => {
                        if let Some(open) = open {
                            self.write(open, &bytes).await?;
                        }
                    }
                    Found::End => {
                        if let Some(open) = open.take() {
                            self.close(open).await?;
                        }
                    }
                }
            }
        }
        if parts.is_over() { Ok(()) } else { Err(No::bad("the body is no multipart body: it broke off")) }
    }

    async fn octets(&mut self, path: &str, packed: bool, body: &mut Body) -> Result<(), No> {
        let mut open = self.open(path).await?;
        match self.all_octets(&mut open, packed, body).await {
            Ok(()) => self.close(open).await,
            Err(no) => {
                self.abandon(open).await;
                Err(no)
            }
        }
    }

    async fn all_octets(&self, open: &mut Open, packed: bool, body: &mut Body) -> Result<(), No> {
        let broken = |_| No::bad("the body is not gzip");
        let mut swell = packed.then(Swell::new);
        while let Some(piece) = next(body).await? {
            match &mut swell {
                None => self.write(open, &piece).await?,
                Some(swell) => {
                    let mut rest = piece.as_ref();
                    while let Some(bytes) = swell.add(&mut rest).map_err(broken)? {
                        self.write(open, &bytes).await?;
                    }
                }
            }
        }
        if let Some(swell) = swell {
            self.write(open, &swell.finish().map_err(broken)?).await?;
        }
        Ok(())
    }

    async fn open(&mut self, asked: &str) -> Result<Open, No> {
        let path = paths::resolve(asked, self.user)
            .map_err(|_| No::bad("a path may not begin with another user's home"))?;
        if self.seen.len() >= MOST_FILES {
            return Err(No::bad(format!("a request brings at most {MOST_FILES} files")));
        }
        if !self.seen.insert(paths::plain(&path)) {
            return Err(No::bad(format!("path '{path}' comes twice in one request")));
        }
        let failed = |error| file_trouble(&error, &path, self.sandbox.id());
        let files = self.live.files_as(self.user);
        let there = files.stat(path.as_bytes(), Links::Keep).await;
        let fresh = matches!(&there, Err(error) if error.fault() == Some(Fault::NotFound));
        let upload = files.write(path.as_bytes(), MODE, Writing::Truncate, Parents::Make).await;
        let upload = upload.map_err(failed)?;
        Ok(Open { path, upload, fresh })
    }

    async fn write(&self, open: &mut Open, bytes: &[u8]) -> Result<(), No> {
        let written = open.upload.write(bytes).await;
        written.map_err(|error| file_trouble(&error, &open.path, self.sandbox.id()))
    }

    async fn close(&mut self, open: Open) -> Result<(), No> {
        let Open { path, upload, fresh } = open;
        if let Err(error) = upload.finish().await {
            self.remove(&path, fresh).await;
            return Err(file_trouble(&error, &path, self.sandbox.id()));
        }
        let mut entry = json!({ "path": path, "name": paths::name(&path), "type": "file" });
        if let Some(fields) = entry.as_object_mut().filter(|_| !self.mark.is_empty()) {
            fields.insert("metadata".to_owned(), json!(self.mark));
        }
        if !self.sandbox.marks.put(&path, self.mark.clone()) {
            return Err(No::new(507, "there is no room for the metadata of more files in this sandbox"));
        }
        self.written.push(entry);
        Ok(())
    }

    /// Half a file that nobody had before is nobody's.
    async fn abandon(&self, open: Open) {
        let Open { path, upload, fresh } = open;
        drop(upload);
        self.remove(&path, fresh).await;
    }

    async fn remove(&self, path: &str, fresh: bool) {
        if fresh {
            // What cannot be removed was never made.
            self.live.files_as(self.user).remove(path.as_bytes(), Depth::One).await.ok();
        }
    }
}
