//! Bodies that come from a box piece by piece. Whoever reads slowly slows the box down and nobody else; whoever goes away
//! ends the operation. An error in the middle breaks the answer off, so that nobody takes a part for the whole.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use blastbox_engine::{Download, FileError, Listing};
use blastbox_wire::agent::Coverage;
use hyper::body::Frame;
use tokio::sync::mpsc;

use crate::Trouble;
use crate::entry::EntryView;
use crate::rest::files::Visit;

/// Pieces that may wait for a caller: what is behind them waits in the box.
const AHEAD: usize = 2;

/// Why a body is not whole.
#[derive(Debug, thiserror::Error)]
#[error("the box did not send the rest: {0}")]
struct BrokenOff(#[from] FileError);

type Piece = Result<Bytes, BrokenOff>;

struct Pieces(mpsc::Receiver<Piece>);

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// The rest of a file.
pub(crate) fn download(download: Download, visit: Visit) -> Body {
    archive(None, download, visit)
}

/// An archive, of which the first bytes are here already.
pub(crate) fn archive(first: Option<Vec<u8>>, mut download: Download, mut visit: Visit) -> Body {
    let (to, from) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        if let Some(first) = first
            && to.send(Ok(first.into())).await.is_err()
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
                Ok(Some(bytes)) => (Ok(bytes.into()), false),
                Ok(None) => return,
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
            if to.send(Ok(std::mem::take(&mut text).into())).await.is_err() {
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
            Bytes::from(text)
        });
        to.send(last).await.ok();
    });
    Ok(Body::new(Pieces(from)))
}
