//! Requests of a box that has no link, each brought by the engine on a stream of its own: what follows is HTTP/1 in the clear, whatever
//! the address says, because it never leaves this host. To a server it goes by TLS where the address says `https`.
//!
//! Trust: guest. Address and request are its words, passed on unread; they lead into the same decision as packets do. The
//! request is here in the clear: a rule that wants TLS unread (`tls = "passthrough"`) lets none of them there.

use std::sync::Arc;

use blastbox_policy::Protocol;
use blastbox_wire::egress::{Door, Reason};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;

use super::{Asked, Knock, proxy_connect};
use crate::credentials::Inspected;
use crate::decide::{self, Ask, Said, Target, Verdict};
use crate::flow::Flow;
use crate::house::House;
use crate::http::{self, Spoken};
use crate::report::Denial;

/// Where a request is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// By TLS.
    tls: bool,
    target: Asked,
    port: u16,
}

impl Address {
    /// Reads `http://name`, `https://name:port` and the like: a scheme, a name or an address, and a port or the usual one.
    ///
    /// # Errors
    /// Why it is none.
    pub fn parse(text: &str) -> Result<Self, Reason> {
        let (scheme, authority) = text.split_once("://").ok_or(Reason::BadRequest)?;
        let (tls, usual) = match scheme {
            "http" => (false, ":80"),
            "https" => (true, ":443"),
            _ => return Err(Reason::BadRequest),
        };
        let has_port = authority.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        let whole = if has_port { authority.to_owned() } else { [authority, usual].concat() };
        let (target, port) = proxy_connect::place(&whole)?;
        Ok(Self { tls, target, port })
    }
}

/// Serves one of them.
pub(crate) async fn serve(mut stream: UnixStream, to: String, house: Arc<House>, knock: Knock) {
    let flow = match admit(&to, &house) {
        Ok(flow) => flow,
        Err(reason) => {
            let host = to.split_once("://").map_or(to.as_str(), |(_, authority)| authority);
            // Whoever waited may have gone; the refusal is told already.
            stream.write_all(&http::refuse(reason, host)).await.ok();
            stream.shutdown().await.ok();
            return;
        }
    };
    // From here on it counts as a connection.
    drop(knock);
    let tls = to.starts_with("https");
    flow.clone().unless_stopped(carry(stream, tls, flow, house)).await;
}

/// The connection that a request asks for. Whatever is refused is told.
fn admit(to: &str, house: &House) -> Result<Flow, Reason> {
    let Address { tls, target, port } = Address::parse(to).inspect_err(|reason| {
        house.reporter().denied(Denial::of_text(Door::Call, to.to_owned(), 0, *reason));
    })?;
    let target = match target {
        Asked::Name(name) => Target::Name(name),
        Asked::Address(address) => house.meaning(address),
    };
    let said = match &target {
        // As a client that speaks TLS says it in its first message.
        Target::Name(name) if tls => Said::Hello(decide::Hello::Name(name)),
        Target::Address(_) if tls => Said::Hello(decide::Hello::NoName),
        Target::Name(_) | Target::Address(_) => Said::Nothing,
    };
    let decided = match house.decide(&Ask { target: &target, port, said }) {
        Verdict::Deny(reason) => Err(reason),
        Verdict::Allow(allowed) => match (allowed.protocol(), tls) {
            (Protocol::Http, false) | (Protocol::Https | Protocol::Ws, true) => {
                house.admit(Door::Call, allowed)
            }
            (Protocol::Https | Protocol::Ws, false) => Err(Reason::NotTls),
            (Protocol::Http | Protocol::Tcp, _) => Err(Reason::Transport),
        },
    };
    decided.inspect_err(|reason| house.reporter().denied(Denial::of(Door::Call, &target, port, *reason)))
}

async fn carry(stream: UnixStream, tls: bool, flow: Flow, house: Arc<House>) {
    let stream = house.metered(stream, &flow);
    match (tls, flow.target().clone()) {
        (false, _) => Box::pin(http::serve(stream, flow, house)).await,
        (true, Target::Name(name)) => {
            let inspected = Inspected::new(name, flow.port());
            Box::pin(http::serve_inspected(stream, Spoken::Http1, flow, house, inspected)).await;
        }
        (true, Target::Address(_)) => flow.deny(Reason::NameMissing),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Asked {
        Asked::Name(text.parse().unwrap())
    }

    #[test]
    fn an_address_has_a_scheme_a_name_and_perhaps_a_port() {
        for (text, tls, target, port) in [
            ("https://api.example.com", true, name("api.example.com"), 443),
            ("http://API.example.com", false, name("api.example.com"), 80),
            ("https://api.example.com:8443", true, name("api.example.com"), 8443),
            ("http://192.0.2.1:81", false, Asked::Address("192.0.2.1".parse().unwrap()), 81),
            ("http://[2001:db8::1]", false, Asked::Address("2001:db8::1".parse().unwrap()), 80),
        ] {
            assert_eq!(Address::parse(text), Ok(Address { tls, target, port }), "{text}");
        }
    }

    #[test]
    fn what_could_mean_two_places_means_none() {
        for text in [
            "",
            "api.example.com",
            "ftp://api.example.com",
            "https://",
            "https://user@api.example.com",
            "https://api.example.com:0",
            "https://api.example.com:+443",
            "https://api.example.com/path",
            "https://api.example.com:443:443",
            "https://a b",
            "https://0x7f.1",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }
}
