//! Bodies that come from a box piece by piece. Whoever reads slowly slows the box down and nobody else; whoever goes away
//! ends the operation. An error in the middle breaks the answer off, so that nobody takes a part for the whole.

use std::fmt::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use blastbox_engine::{Download, FileError, Listing};
use blastbox_wire::agent::Coverage;
use hyper::body::Frame;
use tokio::sync::mpsc;

use crate::Trouble;
use crate::entry::{EntryView, Name};
use crate::rest::files::Visit;

/// Pieces that may wait for a caller: what is behind them waits in the box.
const AHEAD: usize = 2;

/// Why a body is not whole.
#[derive(Debug, thiserror::Error)]
#[error("the box did not send the rest: {0}")]
struct BrokenOff(#[from] FileError);

type Piece = Result<Frame<Bytes>, BrokenOff>;

struct Pieces(mpsc::Receiver<Piece>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.0.poll_recv(context)
    }
}

/// What is said behind the last bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AtTheEnd {
    Nothing,
    WhatIsLeftOut,
}

/// The rest of a file.
pub(crate) fn download(download: Download, visit: Visit) -> Body {
    pour(None, download, visit, AtTheEnd::Nothing)
}

/// An archive, of which the first bytes are here already. What is not in it is said in trailers.
pub(crate) fn archive(first: Option<Vec<u8>>, download: Download, visit: Visit) -> Body {
    pour(first, download, visit, AtTheEnd::WhatIsLeftOut)
}

fn pour(first: Option<Vec<u8>>, mut download: Download, mut visit: Visit, end: AtTheEnd) -> Body {
    let (to, from) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        if let Some(first) = first
            && to.send(Ok(Frame::data(first.into()))).await.is_err()
        {
            return;
        }
        loop {
            let piece = tokio::select! {
                biased;
                () = to.closed() => return,
                piece = download.next() => piece,
            };
            let (piece, last) = match piece {
                Ok(Some(bytes)) => (Ok(Frame::data(bytes.into())), false),
                Ok(None) if end == AtTheEnd::Nothing => return,
                Ok(None) => match download.summary().await {
                    Ok(summary) => (Ok(Frame::trailers(left_out(&download, summary.skipped))), true),
                    Err(error) => (Err(error.into()), true),
                },
                Err(error) => (Err(error.into()), true),
            };
            if to.send(piece).await.is_err() || last {
                return;
            }
            visit.touch();
        }
    });
    Body::new(Pieces(from))
}

/// How many entries of a directory are not in its archive.
pub(crate) const SKIPPED: HeaderName = HeaderName::from_static("blastbox-skipped");
/// The first of them, as JSON.
pub(crate) const LEFT_OUT: HeaderName = HeaderName::from_static("blastbox-left-out");
/// Bytes of JSON for them: with the other trailers it stays far beneath what clients take.
const MOST_NAMES: usize = 4096;

fn left_out(download: &Download, skipped: u64) -> HeaderMap {
    let mut trailers = HeaderMap::from_iter([(SKIPPED, HeaderValue::from(skipped))]);
    let mut names = String::new();
    for entry in download.left_out() {
        // Texts always become JSON.
        let name = serde_json::to_string(&Name::from(entry.path.clone())).unwrap_or_default();
        let name = plain(&name);
        if names.len() + name.len() > MOST_NAMES {
            continue;
        }
        names.push_str(if names.is_empty() { "[" } else { "," });
        names.push_str(&name);
    }
    if !names.is_empty() {
        names.push(']');
        // Of printable ASCII alone.
        if let Ok(names) = HeaderValue::try_from(names) {
            trailers.insert(LEFT_OUT, names);
        }
    }
    trailers
}

/// JSON in letters that every header may have.
fn plain(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for letter in json.chars() {
        if matches!(letter, ' '..='~') {
            text.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            write!(text, "\\u{unit:04x}").ok();
        }
    }
    text
}

/// A list as one JSON object, however long: `{"entries":[…],"skipped":0,"complete":true}`.
pub(crate) async fn listing(mut listing: Listing, mut visit: Visit) -> Result<Body, Trouble> {
    // The first entries come before the answer: what is no directory is a no.
    let mut next = listing.next().await?;
    let (to, from) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let mut text = b"{\"entries\":[".to_vec();
        let mut between: &[u8] = b"";
        while let Some(entries) = next {
            for entry in entries {
                text.extend_from_slice(between);
                between = b",";
                // Numbers and strings always become JSON.
                serde_json::to_writer(&mut text, &EntryView::from(entry)).ok();
            }
            if to.send(Ok(Frame::data(std::mem::take(&mut text).into()))).await.is_err() {
                return;
            }
            visit.touch();
            let asked = tokio::select! {
                biased;
                () = to.closed() => return,
                asked = listing.next() => asked,
            };
            next = match asked {
                Ok(entries) => entries,
                Err(error) => return drop(to.send(Err(error.into())).await),
            };
        }
        let last = listing.summary().await.map_err(BrokenOff::from).map(|summary| {
            let complete = matches!(summary.coverage, Coverage::Whole);
            text.extend_from_slice(
                format!("],\"skipped\":{},\"complete\":{complete}}}", summary.skipped).as_bytes(),
            );
            Frame::data(Bytes::from(text))
        });
        to.send(last).await.ok();
    });
    Ok(Body::new(Pieces(from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_trailer_is_ascii_and_comes_back_as_it_was() {
        let name = "line\nbreak \u{7f} é 🜁 \"";
        let shown = plain(&serde_json::to_string(&Name::from(name.as_bytes().to_vec())).unwrap());
        assert!(HeaderValue::try_from(&shown).unwrap().to_str().is_ok(), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap()["path"], name);
    }
}
