//! TLS that is carried unread: the name in its first message must be the name that was connected to.

use std::sync::Arc;

use blastbox_wire::egress::Reason;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::decide::{self, Ask, Said, Verdict};
use crate::end::End;
use crate::flow::Flow;
use crate::house::House;
use crate::relay::relay;
use crate::tls::hello::{self, BadHello};

/// A fatal alert, "access denied": clients say so instead of guessing.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// Serves one connection.
pub(crate) async fn serve<S>(mut stream: S, flow: Flow, house: Arc<House>)
where
    S: End + Send + 'static,
{
    let hello = match hello::read(&mut stream).await {
        Ok(hello) => hello,
        Err(bad) => {
            flow.deny(bad.reason().unwrap_or(Reason::NotTls));
            // Whoever speaks TLS understands an alert; what is none is only closed.
            if matches!(bad, BadHello::NoName | BadHello::BadName) {
                turn_away(stream).await;
            }
            return;
        }
    };
    // Which of the two names is meant cannot be seen here, so a connection that hides one is not carried.
    let said = match hello.encrypted_inner {
        true => decide::Hello::Encrypted,
        false => decide::Hello::Name(&hello.name),
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
    if target.stream.write_all(&hello.raw).await.is_ok() {
        relay(stream, target, &flow).await;
    }
}

async fn turn_away<S: AsyncWrite + Unpin>(mut stream: S) {
    // The box may have gone; then there is nobody to tell.
    stream.write_all(&ACCESS_DENIED).await.ok();
    stream.shutdown().await.ok();
}
