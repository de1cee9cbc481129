//! A body that is sent as it comes, and that can break off.
//!
//! An SDK tells the end of a sandbox from the end of a stream by how the connection ends: one that breaks off, without a
//! last chunk, makes it ask whether the sandbox still runs.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use tokio::sync::mpsc;

/// Pieces that may wait for a client. More would only be memory: what is behind them waits in the box or on a tape.
const AHEAD: usize = 4;

/// The connection is to break off here.
#[derive(Debug, thiserror::Error)]
#[error("the sandbox ended")]
pub(super) struct Cut;

/// The way to fill a body. Letting go of it ends the body well; [`Filler::cut`] does not.
#[derive(Debug)]
pub(super) struct Filler(mpsc::Sender<Result<Bytes, Cut>>);

impl Filler {
    /// Passes a piece on; waits while the client does not take it. `false`: nobody is there any more.
    pub(super) async fn send(&self, piece: impl Into<Bytes>) -> bool {
        self.0.send(Ok(piece.into())).await.is_ok()
    }

    /// Breaks the connection off.
    pub(super) async fn cut(self) {
        // A client that is gone needs no telling.
        self.0.send(Err(Cut)).await.ok();
    }

    /// Waits until nobody is there any more.
    pub(super) async fn left_alone(&self) {
        self.0.closed().await;
    }
}

#[derive(Debug)]
struct Feed(mpsc::Receiver<Result<Bytes, Cut>>);

impl hyper::body::Body for Feed {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }
}

/// A body, and the way to fill it.
pub(super) fn channel() -> (Filler, Body) {
    let (to, from) = mpsc::channel(AHEAD);
    (Filler(to), Body::new(Feed(from)))
}
