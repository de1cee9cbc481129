//! What becomes of a connection that was let in: the rule says which room it goes to.

use std::sync::Arc;

use blastbox_policy::{Protocol, TlsMode};

use crate::end::End;
use crate::flow::Flow;
use crate::house::House;
use crate::relay::relay;
use crate::{http, passthrough, tls};

/// Serves one connection that was let in, every byte of it counted.
pub(crate) async fn serve<S>(stream: S, flow: Flow, house: Arc<House>)
where
    S: End + Send + 'static,
{
    flow.clone().unless_stopped(lead(stream, flow, house)).await;
}

async fn lead<S>(stream: S, flow: Flow, house: Arc<House>)
where
    S: End + Send + 'static,
{
    let stream = house.metered(stream, &flow);
    // Each by itself: a connection takes the memory of the room that it is in, not that of the largest.
    match (flow.allowed.protocol(), flow.allowed.tls()) {
        (Protocol::Tcp, _) => {
            let allowed = flow.allowed.clone();
            if let Ok(target) = Box::pin(house.dial(&flow, &allowed)).await {
                Box::pin(relay(stream, target, &flow)).await;
            }
        }
        (Protocol::Http, _) => Box::pin(http::serve(stream, flow, house)).await,
        (Protocol::Https | Protocol::Ws, TlsMode::Inspect) => Box::pin(tls::serve(stream, flow, house)).await,
        (Protocol::Https | Protocol::Ws, TlsMode::Passthrough) => {
            Box::pin(passthrough::serve(stream, flow, house)).await
        }
    }
}
