//! `GET /files`: the bytes of a file, as they come out of the box.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, HeaderName, IF_MODIFIED_SINCE, LAST_MODIFIED, RANGE, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use blastbox_engine::{Download, Slice};
use blastbox_wire::agent::{Entry, EntryKind, Extent, Links, User};

use super::encoding::{self, Coding};
use super::gzip::Squeeze;
use super::ranges::{self, Wanted};
use super::{file_trouble, paths};
use crate::e2b::desk::Desk;
use crate::e2b::feed::{self, Filler};
use crate::e2b::moment;
use crate::e2b::no::No;
use crate::e2b::sandbox::Sandbox;

pub(super) async fn download(
    desk: &Arc<Desk>,
    sandbox: &Sandbox,
    user: User,
    path: Option<&str>,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response<Body>, No> {
    let asked = path.unwrap_or_default();
    let path =
        paths::resolve(asked, user).map_err(|_| No::bad("a path may not begin with another user's home"))?;
    let coding = encoding::choose(text(headers, &ACCEPT_ENCODING))
        .map_err(|_| No::new(406, "no acceptable encoding found: a file is sent as it is, or as gzip"))?;
    let live = desk.live(sandbox)?;
    let failed = |error| file_trouble(&error, &path, sandbox.id());
    let conditional = headers.contains_key(RANGE) || headers.contains_key(IF_MODIFIED_SINCE);
    let (status, slice) = if conditional || *method == Method::HEAD {
        let entry = live.files_as(user).stat(path.as_bytes(), Links::Follow).await.map_err(failed)?;
        if entry.kind == EntryKind::Directory {
            return Err(No::bad(format!("path '{path}' is a directory")));
        }
        match decide(headers, &entry) {
            Decided::Send(status, slice) => (status, slice),
            Decided::Answer(response) => return Ok(*response),
        }
    } else {
        (StatusCode::OK, Slice::WHOLE)
    };
    // What was asked for in parts is sent as it is: the numbers would mean nothing otherwise.
    let coding = if conditional { Coding::Identity } else { coding };
    let download = live.files_as(user).read(path.as_bytes(), slice).await.map_err(failed)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    describe(response.headers_mut(), &path, download.entry(), slice, status, coding);
    if *method != Method::HEAD {
        let (filler, body) = feed::channel();
        tokio::spawn(pump(download, filler, coding));
        *response.body_mut() = body;
    }
    Ok(response)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

enum Decided {
    Send(StatusCode, Slice),
    Answer(Box<Response<Body>>),
}

/// What a range or a condition means for this file.
fn decide(headers: &HeaderMap, entry: &Entry) -> Decided {
    let short = |status| {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        response
    };
    let since = text(headers, &IF_MODIFIED_SINCE).and_then(moment::parse_http_date);
    if since.is_some_and(|since| seconds(entry) <= since) {
        return Decided::Answer(Box::new(short(StatusCode::NOT_MODIFIED)));
    }
    match ranges::parse(text(headers, &RANGE), entry.size) {
        Wanted::Whole => Decided::Send(StatusCode::OK, Slice::WHOLE),
        Wanted::Part { first, last } => {
            let slice = Slice { offset: first, most: last - first + 1, extent: Extent::Seen };
            Decided::Send(StatusCode::PARTIAL_CONTENT, slice)
        }
        Wanted::Nothing => {
            let mut response = short(StatusCode::RANGE_NOT_SATISFIABLE);
            if let Ok(range) = HeaderValue::try_from(format!("bytes */{}", entry.size)) {
                response.headers_mut().insert(CONTENT_RANGE, range);
            }
            Decided::Answer(Box::new(response))
        }
    }
}

fn seconds(entry: &Entry) -> u64 {
    u64::try_from(entry.modified_nanos).unwrap_or(0) / 1_000_000_000
}

fn describe(
    headers: &mut HeaderMap,
    path: &str,
    entry: Option<&Entry>,
    slice: Slice,
    status: StatusCode,
    coding: Coding,
) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Ok(disposition) = HeaderValue::try_from(format!("inline; filename={}", quoted(paths::name(path))))
    {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    let Some(entry) = entry else { return };
    if let Ok(modified) = HeaderValue::try_from(moment::http_date(seconds(entry))) {
        headers.insert(LAST_MODIFIED, modified);
    }
    match coding {
        Coding::Gzip => {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        // A box that sends less than it announced breaks the connection off; more than that is never taken from it.
        Coding::Identity => {
            let length = entry.size.saturating_sub(slice.offset).min(slice.most);
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            let range = format!("bytes {}-{}/{}", slice.offset, slice.offset + length.max(1) - 1, entry.size);
            if status == StatusCode::PARTIAL_CONTENT
                && let Ok(range) = HeaderValue::try_from(range)
            {
                headers.insert(CONTENT_RANGE, range);
            }
        }
    }
}

/// A file name as a header can carry it: what a quote or a byte of another alphabet would break is left out.
fn quoted(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if matches!(c, ' '..='~') && !matches!(c, '"' | '\\') { c } else { '_' })
        .collect();
    format!("\"{plain}\"")
}

/// From the box to the client. Whoever goes away stops the box; a box that ends breaks the connection off.
async fn pump(mut download: Download, filler: Filler, coding: Coding) {
    let mut squeeze = match coding {
        Coding::Gzip => Some(Squeeze::new()),
        Coding::Identity => None,
    };
    loop {
        let piece = tokio::select! {
            piece = download.next() => piece,
            () = filler.left_alone() => return,
        };
        let bytes = match (piece, &mut squeeze) {
            (Ok(Some(bytes)), None) => bytes,
            (Ok(Some(bytes)), Some(squeeze)) => match squeeze.add(&bytes) {
                Ok(packed) => packed,
                Err(_) => return filler.cut().await,
            },
            (Ok(None), _) => break,
            (Err(_), _) => return filler.cut().await,
        };
        if !bytes.is_empty() && !filler.send(Bytes::from(bytes)).await {
            return;
        }
    }
    if let Some(squeeze) = squeeze {
        match squeeze.finish() {
            // A client that is gone misses nothing.
            Ok(rest) => drop(filler.send(Bytes::from(rest)).await),
            Err(_) => filler.cut().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_of_a_file_can_break_a_header() {
        assert_eq!(quoted("a b.txt"), "\"a b.txt\"");
        assert_eq!(quoted("a\"; x=\r\nSet-Cookie: é"), "\"a_; x=__Set-Cookie: _\"");
    }
}
