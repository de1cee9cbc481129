//! The port: only for whoever has a key, and beyond this host only where there is a key at all.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use tokio::net::TcpListener;

use crate::{DoorError, Keys};

/// The port where none is given.
pub const DEFAULT_PORT: u16 = 7080;

/// An address to listen on: `127.0.0.1`, `127.0.0.1:7080`, `[::1]:7080`, `localhost`, `:7080` or `7080`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpAddress(pub SocketAddr);

/// The text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an address to listen on; write 127.0.0.1:7080, [::1]:7080, localhost or a port alone")]
pub struct BadAddress;

impl Default for TcpAddress {
    fn default() -> Self {
        Self(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), DEFAULT_PORT))
    }
}

impl FromStr for TcpAddress {
    type Err = BadAddress;
    fn from_str(text: &str) -> Result<Self, BadAddress> {
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        if let Ok(host) = text.parse::<IpAddr>() {
            return Ok(Self(SocketAddr::new(host, DEFAULT_PORT)));
        }
        // No other names: what a name leads to is not for us to guess.
        let (host, port) = text.rsplit_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
        let (host, port) = match (host, port) {
            ("localhost" | "", Some(port)) => (host, port.parse().map_err(|_| BadAddress)?),
            ("localhost", None) => (host, DEFAULT_PORT),
            (port, None) => ("localhost", port.parse().map_err(|_| BadAddress)?),
            _ => return Err(BadAddress),
        };
        debug_assert!(matches!(host, "localhost" | ""));
        Ok(Self(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)))
    }
}

/// Opens a port, unless that would let strangers in.
pub(super) async fn open(TcpAddress(address): TcpAddress, keys: &Keys) -> Result<TcpListener, DoorError> {
    if !address.ip().to_canonical().is_loopback() && keys.list().map_err(DoorError::Keys)?.is_empty() {
        return Err(DoorError::NoKeys { address });
    }
    TcpListener::bind(address).await.map_err(|source| DoorError::Port { address, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn an_address_without_a_port_gets_ours_and_one_without_a_host_stays_on_this_host() {
        for (text, address) in [
            ("127.0.0.1", "127.0.0.1:7080"),
            ("0.0.0.0:80", "0.0.0.0:80"),
            ("::1", "[::1]:7080"),
            ("[::1]:9", "[::1]:9"),
            ("localhost", "127.0.0.1:7080"),
            ("localhost:9", "127.0.0.1:9"),
            (":9", "127.0.0.1:9"),
            ("9", "127.0.0.1:9"),
        ] {
            assert_eq!(text.parse(), Ok(TcpAddress(address.parse().unwrap())), "{text}");
        }
        for bad in ["", "example.com", "example.com:80", "localhost:x", "1.2.3", "99999", ":"] {
            assert_eq!(bad.parse::<TcpAddress>(), Err(BadAddress), "{bad}");
        }
    }

    #[tokio::test]
    async fn beyond_this_host_nobody_is_let_in_without_a_key() {
        let scratch = Scratch::new("port");
        let keys = Keys::in_directory(scratch.path());
        // 192.0.2.0/24 is for documents: it is nobody's address, and nothing is sent there.
        for open_to_all in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0", "[::ffff:192.0.2.1]:0"] {
            let refused = open(open_to_all.parse().unwrap(), &keys).await;
            assert!(matches!(refused, Err(DoorError::NoKeys { .. })), "{open_to_all}");
        }
        assert!(open("127.0.0.1:0".parse().unwrap(), &keys).await.is_ok());
        keys.create("one".parse().unwrap(), None).unwrap();
        let bound = open("192.0.2.1:0".parse().unwrap(), &keys).await;
        assert!(matches!(bound, Err(DoorError::Port { .. })));
    }
}
