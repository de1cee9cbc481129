//! Files on their way into a volume and out of it, piece by piece.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::super::draft::Draft;
use super::super::room::new_entries;
use super::{On, Wish, full, no_disk, show, stat, unheard};
use crate::e2b::feed;
use crate::e2b::no::No;

const SILENCE: Duration = Duration::from_secs(60);
const WHOLE: Duration = Duration::from_secs(3_600);
const GULP: usize = 64 * 1024;
/// After so many bytes it is looked whether the disk has room for more: an upload may take an hour, and is not the only one.
const BETWEEN_LOOKS: u64 = 1 << 20;

pub(super) async fn read(on: On) -> Result<Response<Body>, No> {
    let threads = on.threads.clone();
    let (mut file, length) = on.blocking(|tree, place| tree.read(place)).await?;
    let (filler, body) = feed::channel();
    tokio::spawn(async move {
        let mut left = length;
        while left > 0 {
            let read = threads.run(move || {
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

pub(super) async fn write(on: On, wish: &Wish, request: Request) -> Result<Response<Body>, No> {
    // Where a length was told, what cannot fit in the end does not begin, and stops no other halfway.
    let told = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let told = told.unwrap_or(0);
    let begin = move |on: &On| {
        let hold = on.hold(new_entries(1, told))?;
        let file = on.shelf.draft().map_err(|error| unheard(&error, &on.place))?;
        Ok(Arc::new(Draft::begin(file, hold, on.threads.clone())))
    };
    let draft = on.clone().apart(begin).await?;
    let received = timeout(WHOLE, receive(&on, &draft, request.into_body())).await;
    let received = received.unwrap_or_else(|_| Err(No::new(408, "the upload took too long")));
    let threads = on.threads.clone();
    let (mode, replace, arriving) = (wish.mode, wish.force != Some(false), Arc::clone(&draft));
    let arrive = move |on: &On| {
        let arrived = on.at_disk(|tree, place| arriving.arrive(|path| tree.put(path, place, replace)))?;
        let found = arrived.ok_or_else(|| full(on.shelf.most().bytes))?;
        match mode {
            Some(mode) => on.at_disk(|tree, place| tree.set_mode(place, mode)),
            None => Ok(found),
        }
    };
    let arrived = match received {
        Ok(()) => on.apart(arrive).await,
        Err(no) => Err(no),
    };
    if arrived.is_err() {
        // Whoever is answered finds its room free again.
        threads.run(move || draft.discard()).await.ok();
    }
    Ok(show(StatusCode::CREATED, stat(&arrived?)))
}

/// Takes everything that is sent, as far as there is room for it.
async fn receive(on: &On, draft: &Arc<Draft>, mut body: Body) -> Result<(), No> {
    let (mut taken, mut next_look) = (0_u64, BETWEEN_LOOKS);
    loop {
        let frame = timeout(SILENCE, body.frame()).await;
        let frame = frame.map_err(|_| No::new(408, "the upload did not go on"))?;
        let Some(frame) = frame else { return Ok(()) };
        let Ok(data) = frame.map_err(|_| No::bad("the upload broke off"))?.into_data() else { continue };
        taken = taken.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
        let (draft, looks) = (Arc::clone(draft), taken >= next_look);
        let take = move |on: &On| {
            match draft.write(&data) {
                Ok(true) => {}
                Ok(false) => return Err(full(on.shelf.most().bytes)),
                Err(error) => return Err(unheard(&error, &on.place)),
            }
            if looks && !on.shelf.disk_has_room() { Err(no_disk()) } else { Ok(()) }
        };
        on.clone().apart(take).await?;
        if looks {
            next_look = taken.saturating_add(BETWEEN_LOOKS);
        }
    }
}
