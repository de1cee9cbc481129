//! A connection that has become a WebSocket: bytes both ways, those of the server without secrets.

use std::sync::Arc;
use std::time::Duration;

use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::time::timeout;

use crate::credentials::{Patterns, Scrubber};

/// How long both sides may be silent.
const SILENCE: Duration = Duration::from_secs(60 * 60);

/// Both ends of an upgrade that both sides have agreed to.
pub(super) struct Tunnel {
    pub(super) to_guest: OnUpgrade,
    pub(super) to_server: OnUpgrade,
    pub(super) patterns: Option<Arc<Patterns>>,
}

/// Carries bytes until one side ends.
pub(super) async fn carry(tunnel: Tunnel) {
    let Tunnel { to_guest, to_server, patterns } = tunnel;
    let (Ok(guest), Ok(server)) = (to_guest.await, to_server.await) else { return };
    let (from_guest, to_guest) = halves(guest);
    let (from_server, to_server) = halves(server);
    // When one direction ends, the other is of no use: a WebSocket is closed by both sides at once.
    tokio::select! {
        () = pump(from_guest, to_server, None) => {}
        () = pump(from_server, to_guest, patterns) => {}
    }
}

type Half<T> = (ReadHalf<T>, WriteHalf<T>);

fn halves(upgraded: Upgraded) -> Half<TokioIo<Upgraded>> {
    split(TokioIo::new(upgraded))
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    patterns: Option<Arc<Patterns>>,
) {
    let mut scrubber = Scrubber::default();
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(Ok(got @ 1..)) = timeout(SILENCE, from.read(&mut buffer)).await {
        let bytes = buffer.get(..got).unwrap_or_default();
        let written = match &patterns {
            Some(patterns) => to.write_all(&scrubber.feed(patterns, bytes)).await,
            None => to.write_all(bytes).await,
        };
        if written.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    if let Some(patterns) = &patterns
        && to.write_all(&scrubber.finish(patterns)).await.is_err()
    {
        return;
    }
    // The end of one direction is told to the other side; it may be gone already.
    to.shutdown().await.ok();
}
