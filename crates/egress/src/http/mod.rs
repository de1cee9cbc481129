//! Plain HTTP, request by request.

use std::sync::Arc;

use blastbox_wire::egress::Reason;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::flow::Flow;
use crate::house::House;

/// Serves a connection whose requests are read. Nobody reads them in this version, so it is refused; a policy that asks
/// for it does not seal.
pub async fn serve<S>(stream: S, flow: Flow, _house: Arc<House>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    flow.deny(Reason::InspectionNotBuilt);
    drop(stream);
}
