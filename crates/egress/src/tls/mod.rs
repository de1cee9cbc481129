//! TLS: whom the box calls, whom it believes, and whom the gateway believes.
//!
//! [`serve`] ends a connection of the box with the box's own authority, so that requests can be read. It goes on only if
//! the name in the client's hello is the name that the flow was opened for; what the guest wrote in DNS, in its hosts
//! file or in its own resolver changes nothing.

mod ca;
pub mod hello;
mod pem;
mod roots;

use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::Host;
use blastbox_wire::egress::Reason;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::StartHandshake;
use tokio_rustls::server::TlsStream;

use self::ca::OneName;
pub use self::ca::{BoxCa, CaError};
pub(crate) use self::roots::Offer;
pub use self::roots::Roots;
use crate::credentials::Inspected;
use crate::decide::{self, Ask, Said, Target, Verdict};
use crate::flow::Flow;
use crate::house::House;
use crate::http::{self, Spoken};
use crate::inspection::Inspection;

/// How long the box may take for its side of TLS.
const HANDSHAKE: Duration = Duration::from_secs(15);

/// Serves a TLS connection whose requests are read.
pub async fn serve<S>(stream: S, flow: Flow, house: Arc<House>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Each in a room of its own: hundreds of connections wait in the second, and the first is given back before that.
    let Some((name, stream)) = Box::pin(agree(stream, &flow, &house)).await else { return };
    let spoken = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Spoken::Http2,
        _ => Spoken::Http1,
    };
    let inspected = Inspected::new(name, flow.port());
    Box::pin(http::serve_inspected(stream, spoken, flow, house, inspected)).await;
}

/// Ends the box's side of TLS. `None`: it did not come about, which is told where it was refused.
async fn agree<S>(mut stream: S, flow: &Flow, house: &House) -> Option<(Host, TlsStream<S>)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let refused = |reason| {
        flow.deny(reason);
        None
    };
    let hello = match hello::read(&mut stream).await {
        Ok(hello) => hello,
        Err(bad) => return bad.reason().and_then(refused),
    };
    // An encrypted second hello stays unread: this end has no key for it, answers the open one, and calls the server by
    // exactly that name. Clients send one for show on every connection, so refusing it would refuse browsers.
    let said = Said::Hello(decide::Hello::Name(&hello.name));
    if let Verdict::Deny(reason) = house.decide(&Ask { target: flow.target(), port: flow.port(), said }) {
        return refused(reason);
    }
    let Target::Name(name) = flow.target().clone() else { return refused(Reason::NameMissing) };
    let Some(inspection) = house.inspection() else { return refused(Reason::InspectionNotBuilt) };
    let Ok(config) = certified(inspection, name.as_str()) else {
        return refused(Reason::InspectionNotBuilt);
    };
    let handshake = StartHandshake::from_parts(hello.accepted, stream).into_stream(config);
    // A client that does not believe the box's authority ends it here; it says so to its user.
    match timeout(HANDSHAKE, handshake).await {
        Ok(Ok(stream)) => Some((name, stream)),
        Ok(Err(_)) => None,
        Err(_) => {
            flow.end_by(Reason::Timeout);
            None
        }
    }
}

fn certified(inspection: &Inspection, name: &str) -> Result<Arc<ServerConfig>, CaError> {
    let leaf = inspection.ca().leaf(name)?;
    let mut config = ServerConfig::builder_with_provider(inspection.ca().provider())
        .with_safe_default_protocol_versions()
        .map_err(|source| CaError::Use { what: name.to_owned(), source })?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(OneName(leaf)));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // No tickets: a session that is taken up again would not be certified anew.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(Arc::new(config))
}
