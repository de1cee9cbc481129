//! What is asked about: somewhere that a box might want to go, and how.

use std::net::IpAddr;
use std::str::FromStr;

use blastbox_policy::{BadRule, Destination, Host, Protocol};

/// Somewhere that a box might want to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    pub(super) scheme: Scheme,
    pub(super) to: Destination,
    pub(super) port: u16,
    pub(super) path: String,
}

/// How it would go there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Https,
    Http,
    Wss,
    /// A WebSocket in the clear, which no protocol of rules stands for.
    Ws,
    Tcp,
}

impl Scheme {
    const fn usual_port(self) -> Option<u16> {
        match self {
            Self::Https | Self::Wss => Some(443),
            Self::Http | Self::Ws => Some(80),
            Self::Tcp => None,
        }
    }

    /// What the smallest rule for it speaks.
    pub(super) const fn protocol(self) -> Protocol {
        match self {
            Self::Https => Protocol::Https,
            Self::Http => Protocol::Http,
            Self::Wss => Protocol::Ws,
            Self::Ws | Self::Tcp => Protocol::Tcp,
        }
    }
}

/// What is no URL that a gateway could judge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no URL that can be judged: {why}; write https://HOST[:PORT]/PATH, http://…, wss://… or tcp://HOST:PORT"
)]
pub(crate) struct BadUrl {
    text: String,
    why: &'static str,
}

impl FromStr for Url {
    type Err = BadUrl;
    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = |why| BadUrl { text: text.chars().take(80).collect(), why };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        let scheme = match scheme {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            "wss" => Scheme::Wss,
            "ws" => Scheme::Ws,
            "tcp" => Scheme::Tcp,
            _ => return Err(bad("its scheme is another")),
        };
        let (authority, path) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        if authority.contains('@') {
            return Err(bad("it has a user in it, which changes what the host is"));
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => {
                (host, Some(port.strip_prefix(':').ok_or_else(|| bad("its port is none"))?))
            }
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            Some(port) => Some(
                port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| bad("its port is none"))?,
            ),
            None => scheme.usual_port(),
        };
        let to = match (host.parse::<IpAddr>(), host.parse::<Host>()) {
            (Ok(address), _) => Destination::Address(address),
            (Err(_), Ok(name)) => Destination::Name(name),
            (Err(_), Err(_)) => {
                return Err(bad("its host is neither a name nor an address in its usual form"));
            }
        };
        let path = path.split(['?', '#']).next().filter(|path| !path.is_empty()).unwrap_or("/");
        Ok(Self { scheme, to, port: port.ok_or_else(|| bad("raw TCP needs a port"))?, path: path.to_owned() })
    }
}

/// The method of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Method(String);

impl FromStr for Method {
    type Err = BadRule;
    /// As rules take them.
    fn from_str(text: &str) -> Result<Self, BadRule> {
        let capitals = !text.is_empty()
            && text.len() <= 32
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        capitals
            .then(|| Self(text.to_owned()))
            .ok_or_else(|| BadRule::Method { text: text.chars().take(40).collect() })
    }
}

/// What would be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(super) url: Url,
    /// GET, where none is named.
    pub(super) method: Option<Method>,
}

impl Wanted {
    pub(crate) fn new(url: Url, method: Option<Method>) -> Self {
        Self { url, method }
    }

    /// What opens a WebSocket is a GET.
    pub(super) fn method(&self) -> &str {
        match (&self.method, self.url.scheme) {
            (Some(Method(method)), Scheme::Https | Scheme::Http) => method,
            (None, _) | (Some(_), Scheme::Wss | Scheme::Ws | Scheme::Tcp) => "GET",
        }
    }
}
