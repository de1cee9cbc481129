//! Files on their way into a volume and out of it, piece by piece.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::{On, Wish, full, no_disk, unheard};
use crate::e2b::feed;
use crate::e2b::no::No;

const SILENCE: Duration = Duration::from_secs(60);
const WHOLE: Duration = Duration::from_secs(3_600);
const GULP: usize = 64 * 1024;
/// After so many bytes it is looked whether the disk has room for more: an upload may take an hour, and is not the only one.
const BETWEEN_LOOKS: u64 = 1 << 20;

pub(super) async fn read(on: On) -> Result<Response<Body>, No> {
    let (mut file, length) = on.blocking(|tree, place| tree.read(place)).await?;
    let (filler, body) = feed::channel();
    tokio::spawn(async move {
        let mut left = length;
        while left > 0 {
            let read = tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; GULP.min(usize::try_from(left).unwrap_or(GULP))];
                let read = file.read(&mut piece).map(|count| {
                    piece.truncate(count);
                    piece
                });
                (file, read)
            });
            let Ok((back, Ok(piece))) = read.await else { return filler.cut().await };
            file = back;
            // It has become shorter while it was read.
            if piece.is_empty() {
                return filler.cut().await;
            }
            left = left.saturating_sub(u64::try_from(piece.len()).unwrap_or(u64::MAX));
            if !filler.send(piece).await {
                return;
            }
        }
    });
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    Ok(response)
}

/// A file on its way in; gone with this, where it has not arrived.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        // An error: it has got its place.
        std::fs::remove_file(&self.0).ok();
    }
}

pub(super) async fn write(on: On, wish: &Wish, request: Request) -> Result<Response<Body>, No> {
    let room = on.has_room().await?;
    let most = on.shelf.most().bytes;
    let (mut file, path) = on.shelf.draft().map_err(|error| unheard(&error, &on.place))?;
    let draft = Draft(path);
    let mut body = request.into_body();
    let place = &on.place;
    let received = timeout(WHOLE, async {
        let (mut taken, mut next_look) = (0_u64, BETWEEN_LOOKS);
        loop {
            let frame = timeout(SILENCE, body.frame()).await;
            let frame = frame.map_err(|_| No::new(408, "the upload did not go on"))?;
            let Some(frame) = frame else { return Ok::<_, No>(file) };
            let Ok(data) = frame.map_err(|_| No::bad("the upload broke off"))?.into_data() else { continue };
            taken = taken.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
            if taken > room {
                return Err(full(most));
            }
            let (shelf, looks) = (Arc::clone(&on.shelf), taken >= next_look);
            let written = tokio::task::spawn_blocking(move || {
                file.write_all(&data)?;
                Ok((file, !looks || shelf.disk_has_room()))
            });
            let written = written.await.map_err(|_| No::defect())?;
            let (back, has_room) = written.map_err(|error: io::Error| unheard(&error, place))?;
            if !has_room {
                return Err(no_disk());
            }
            if looks {
                next_look = taken.saturating_add(BETWEEN_LOOKS);
            }
            file = back;
        }
    });
    let file = received.await.map_err(|_| No::new(408, "the upload took too long"))??;
    // What another upload has brought meanwhile counts too.
    let length = file.metadata().map_or(0, |found| found.len());
    if length > on.has_room().await? {
        return Err(full(most));
    }
    drop(file);
    let (mode, replace) = (wish.mode, wish.force != Some(false));
    on.ask(StatusCode::CREATED, move |tree, place| {
        let found = tree.put(&draft.0, place, replace)?;
        match mode {
            Some(mode) => tree.set_mode(place, mode),
            None => Ok(found),
        }
    })
    .await
}
