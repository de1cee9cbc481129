//! TLS that is carried unread: the name in its first message must be the name that was connected to.

use std::sync::Arc;
use std::time::Duration;

use blastbox_wire::egress::Reason;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::client_hello::{self, Hello};
use crate::decide::{self, Ask, Said, Verdict};
use crate::flow::Flow;
use crate::house::House;
use crate::relay::relay;

/// How long the first message may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// A fatal alert, "access denied": clients say so instead of guessing.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// Serves one connection.
pub async fn serve<S>(mut stream: S, flow: Flow, house: Arc<House>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut bytes = Vec::new();
    let hello = match tokio::time::timeout(PATIENCE, first_message(&mut stream, &mut bytes)).await {
        Ok(Ok(hello)) => hello,
        Ok(Err(_)) => return flow.deny(Reason::NotTls),
        Err(_) => return flow.deny(Reason::Timeout),
    };
    let said = match &hello {
        Hello::Name(name) => decide::Hello::Name(name),
        Hello::NoName => decide::Hello::NoName,
        Hello::Encrypted => decide::Hello::Encrypted,
        Hello::NotTls | Hello::Unfinished => return flow.deny(Reason::NotTls),
    };
    let ask = Ask { target: flow.target(), port: flow.port(), said: Said::Hello(said) };
    let allowed = match house.decide(&ask) {
        Verdict::Allow(allowed) => allowed,
        Verdict::Deny(reason) => {
            flow.deny(reason);
            return turn_away(stream).await;
        }
    };
    let Ok(mut target) = house.dial(&flow, &allowed).await else { return turn_away(stream).await };
    if target.stream.write_all(&bytes).await.is_ok() {
        relay(stream, target, &flow).await;
    }
}

/// Reads until the first message is whole, or cannot become one.
async fn first_message<S: AsyncRead + Unpin>(stream: &mut S, bytes: &mut Vec<u8>) -> std::io::Result<Hello> {
    loop {
        match client_hello::read(bytes) {
            Hello::Unfinished => {}
            done => return Ok(done),
        }
        if stream.read_buf(bytes).await? == 0 {
            return Ok(Hello::NotTls);
        }
    }
}

async fn turn_away<S: AsyncWrite + Unpin>(mut stream: S) {
    // The box may have gone; then there is nobody to tell.
    stream.write_all(&ACCESS_DENIED).await.ok();
    stream.shutdown().await.ok();
}
