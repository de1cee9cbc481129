//! What becomes of a connection that was let in: the rule says which room it goes to.

use std::sync::Arc;

use blastbox_policy::{Protocol, TlsMode};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::flow::Flow;
use crate::house::House;
use crate::relay::relay;
use crate::{http, passthrough, tls};

/// Serves one connection that was let in, every byte of it counted.
pub async fn serve<S>(stream: S, flow: Flow, house: Arc<House>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    flow.clone().unless_stopped(lead(stream, flow, house)).await;
}

async fn lead<S>(stream: S, flow: Flow, house: Arc<House>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = house.metered(stream, &flow);
    match (flow.allowed.protocol(), flow.allowed.tls()) {
        (Protocol::Tcp, _) => {
            let allowed = flow.allowed.clone();
            if let Ok(target) = house.dial(&flow, &allowed).await {
                relay(stream, target, &flow).await;
            }
        }
        (Protocol::Http, _) => http::serve(stream, flow, house).await,
        (Protocol::Https | Protocol::Ws, TlsMode::Inspect) => tls::serve(stream, flow, house).await,
        (Protocol::Https | Protocol::Ws, TlsMode::Passthrough) => {
            passthrough::serve(stream, flow, house).await
        }
    }
}
