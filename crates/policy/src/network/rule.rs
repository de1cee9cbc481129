//! One rule of the allowlist: which host, which ports, what may be said there.

use std::net::IpAddr;
use std::{fmt, str::FromStr};

use super::{BadRule, Host, ResolverUse, below_floor, is_resolver_port};
use crate::words::spoken;

/// Most methods or paths in one rule.
const MOST_WORDS: usize = 64;
/// The longest path pattern.
const LONGEST_PATH: usize = 1024;
/// Most ports in one rule.
pub(super) const MOST_PORTS: usize = 64;

/// What may be spoken with a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Protocol {
    /// HTTP inside TLS, or with passthrough whatever is inside TLS.
    #[default]
    Https,
    /// HTTP without TLS.
    Http,
    /// Whatever runs over TCP: nothing in it is looked at.
    Tcp,
    /// As `https`, and a request may turn the connection into a WebSocket.
    Ws,
}

spoken!(Protocol, "protocol", { Https = "https", Http = "http", Tcp = "tcp", Ws = "ws" });

impl Protocol {
    /// The port that is meant when a rule names none; raw TCP has to name its own.
    #[must_use]
    pub const fn usual_port(self) -> Option<u16> {
        match self {
            Self::Https | Self::Ws => Some(443),
            Self::Http => Some(80),
            Self::Tcp => None,
        }
    }
}

/// What the gateway does with a TLS connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TlsMode {
    /// Decides by the name in the handshake and carries the rest unread.
    #[default]
    Passthrough,
    /// Ends the connection with the box's own authority, reads each request, and makes a new one to the host.
    Inspect,
}

spoken!(TlsMode, "tls mode", { Passthrough = "passthrough", Inspect = "inspect" });

/// Which hosts a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPattern {
    /// This name.
    Exact(Host),
    /// Every name with at least one whole label before this one; not this one itself.
    Under(Host),
    /// This address, when it is dialled without a name.
    Address(IpAddr),
    /// Whatever there is. No rule can be written so: it is what `mode = "dangerously-open"` comes to.
    Any,
}

impl HostPattern {
    /// Whether the pattern covers a name.
    #[must_use]
    pub fn covers(&self, name: &Host) -> bool {
        match self {
            Self::Exact(exact) => exact == name,
            Self::Under(apex) => name.is_under(apex),
            Self::Address(_) => false,
            Self::Any => true,
        }
    }

    /// How closely the pattern describes its names: the closest one that covers a name decides about it.
    #[must_use]
    pub fn closeness(&self) -> usize {
        match self {
            Self::Exact(_) | Self::Address(_) => usize::MAX,
            Self::Under(apex) => apex.as_str().len(),
            Self::Any => 0,
        }
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.pad(name.as_str()),
            Self::Under(apex) => f.pad(&format!("*.{apex}")),
            Self::Address(address) => f.pad(&address.to_string()),
            Self::Any => f.pad("*"),
        }
    }
}

impl FromStr for HostPattern {
    type Err = BadRule;
    fn from_str(text: &str) -> Result<Self, BadRule> {
        let shown = || crate::words::clip(text);
        if let Some(bad) = more_than_a_host(text) {
            return Err(bad);
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address));
        }
        let Some(apex) = text.strip_prefix("*.") else {
            return match text {
                _ if text.contains('*') => Err(BadRule::Wildcard { text: shown() }),
                _ => text.parse().map(Self::Exact).map_err(|why| BadRule::Host { text: shown(), why }),
            };
        };
        if apex.contains('*') {
            return Err(BadRule::Wildcard { text: shown() });
        }
        let apex: Host = apex.parse().map_err(|why| BadRule::Host { text: shown(), why })?;
        // Also for suffixes that no registry knows: everything under an unknown top level is as broad as `*.com`.
        let suffix = psl::suffix(apex.as_str().as_bytes()).map(|suffix| suffix.as_bytes().len());
        if suffix.is_none_or(|length| length >= apex.as_str().len()) {
            return Err(BadRule::TooBroad { apex });
        }
        Ok(Self::Under(apex))
    }
}

/// A path that a request may have: exact, or everything below where it ends in `/*`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathPattern(Box<str>);

impl PathPattern {
    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it covers a path. The path is the canonical one: without dot segments, doubled or encoded slashes.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(folder) => path.starts_with(folder),
            None => path == &*self.0,
        }
    }
}

impl FromStr for PathPattern {
    type Err = BadRule;
    fn from_str(text: &str) -> Result<Self, BadRule> {
        let bad = |why| Err(BadRule::Path { text: crate::words::clip(text), why });
        let plain =
            text.strip_suffix("/*").map_or(text, |folder| if folder.is_empty() { "/" } else { folder });
        if !plain.starts_with('/') {
            return bad("begins with /");
        }
        if text.len() > LONGEST_PATH {
            return bad("is not that long");
        }
        if plain.contains('*') {
            return bad("has * only as its last segment");
        }
        let unreserved = |b: u8| b.is_ascii_alphanumeric() || b"/-._~!$&'()+,;=:@".contains(&b);
        if !plain.bytes().all(unreserved) {
            return bad("is ASCII, without %, ?, # and spaces");
        }
        if plain != "/" && plain.split('/').skip(1).any(|segment| matches!(segment, "" | "." | "..")) {
            return bad("has no empty, . or .. segment and does not end in /");
        }
        Ok(Self(text.into()))
    }
}

/// One rule of the allowlist. Made only by [`AllowRule::new`], so one that exists is consistent in itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowRule {
    host: HostPattern,
    ports: Vec<u16>,
    protocol: Protocol,
    tls: TlsMode,
    methods: Vec<String>,
    paths: Vec<PathPattern>,
    resolver: ResolverUse,
}

/// The parts of a rule as they were written, before anybody has checked that they fit together.
#[derive(Debug, Clone, Default)]
pub struct RuleParts {
    /// The ports; none means the usual one of the protocol.
    pub ports: Vec<u16>,
    /// The protocol.
    pub protocol: Protocol,
    /// What happens to TLS.
    pub tls: TlsMode,
    /// The methods that requests may have; none means every method.
    pub methods: Vec<String>,
    /// The paths that requests may have; none means every path.
    pub paths: Vec<PathPattern>,
    /// Whether the host may be asked for names.
    pub resolver: ResolverUse,
}

impl AllowRule {
    /// The rule of an open network: any host, any port, nothing read.
    pub(super) const ANYTHING: Self = Self {
        host: HostPattern::Any,
        ports: Vec::new(),
        protocol: Protocol::Tcp,
        tls: TlsMode::Passthrough,
        methods: Vec::new(),
        paths: Vec::new(),
        resolver: ResolverUse::DangerouslyAllowed,
    };

    /// Checks that the parts fit together.
    pub fn new(host: HostPattern, parts: RuleParts) -> Result<Self, BadRule> {
        let RuleParts { mut ports, protocol, tls, mut methods, paths, resolver } = parts;
        if ports.is_empty() {
            ports.push(protocol.usual_port().ok_or_else(|| BadRule::NoPort { host: host.to_string() })?);
        }
        ports.sort_unstable();
        ports.dedup();
        if ports.contains(&0) || ports.len() > MOST_PORTS {
            return Err(BadRule::Ports { host: host.to_string() });
        }
        if let Some(port) = ports.iter().find(|port| is_resolver_port(**port)) {
            return Err(BadRule::Resolver { port: *port });
        }
        check_resolver(&host, resolver)?;
        let reads_requests = !methods.is_empty() || !paths.is_empty();
        let in_tls = matches!(protocol, Protocol::Https | Protocol::Ws);
        if reads_requests && protocol == Protocol::Tcp {
            return Err(BadRule::RequestsUnread { host: host.to_string(), because: "protocol = \"tcp\"" });
        }
        if reads_requests && in_tls && tls == TlsMode::Passthrough {
            return Err(BadRule::RequestsUnread { host: host.to_string(), because: "tls = \"passthrough\"" });
        }
        if protocol == Protocol::Ws && tls == TlsMode::Passthrough {
            return Err(BadRule::WebSocketUnread { host: host.to_string() });
        }
        if !in_tls && tls == TlsMode::Inspect {
            return Err(BadRule::NothingToInspect { host: host.to_string(), protocol });
        }
        if methods.len() > MOST_WORDS || paths.len() > MOST_WORDS {
            return Err(BadRule::TooMany { host: host.to_string(), most: MOST_WORDS });
        }
        let token = |m: &String| {
            !m.is_empty() && m.len() <= 32 && m.bytes().all(|b| b.is_ascii_uppercase() || b == b'-')
        };
        if let Some(odd) = methods.iter().find(|method| !token(method)) {
            return Err(BadRule::Method { text: crate::words::clip(odd) });
        }
        methods.sort_unstable();
        methods.dedup();
        if let HostPattern::Address(address) = host {
            if let Some(class) = below_floor(address).filter(|class| !class.can_be_opened()) {
                return Err(BadRule::NeverOpen { address, class });
            }
            if protocol != Protocol::Tcp {
                let port = ports.first().copied().unwrap_or_default();
                return Err(BadRule::AddressNeedsTcp { address, port });
            }
        }
        Ok(Self { host, ports, protocol, tls, methods, paths, resolver })
    }

    /// The same rule without a port; `None` where it has no other.
    pub(super) fn without(&self, port: u16) -> Option<Self> {
        let ports: Vec<u16> = self.ports.iter().copied().filter(|other| *other != port).collect();
        (!ports.is_empty()).then(|| Self { ports, ..self.clone() })
    }

    /// Which hosts it is about.
    #[must_use]
    pub fn host(&self) -> &HostPattern {
        &self.host
    }
    /// The ports, in order; empty only for what an open network comes to.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }
    /// What may be spoken.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
    /// What happens to TLS. Means nothing for protocols without it.
    #[must_use]
    pub fn tls(&self) -> TlsMode {
        self.tls
    }
    /// The methods that requests may have; none means every method.
    #[must_use]
    pub fn methods(&self) -> &[String] {
        &self.methods
    }
    /// The paths that requests may have; none means every path.
    #[must_use]
    pub fn paths(&self) -> &[PathPattern] {
        &self.paths
    }
    /// Whether the host may be asked for names, over HTTPS.
    #[must_use]
    pub fn resolver(&self) -> ResolverUse {
        self.resolver
    }
    /// Whether somebody has to read requests for this rule to hold.
    #[must_use]
    pub fn is_inspected(&self) -> bool {
        match self.protocol {
            Protocol::Http => true,
            Protocol::Https | Protocol::Ws => self.tls == TlsMode::Inspect,
            Protocol::Tcp => false,
        }
    }
}

/// What was written where a host belongs, and is a URL, a host with a path or a port behind it, or a range: each with what to write instead.
fn more_than_a_host(text: &str) -> Option<BadRule> {
    let shown = || crate::words::clip(text);
    if let Some((scheme, rest)) = text.split_once("://") {
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let usual = if matches!(scheme, "http" | "ws") { 80 } else { 443 };
        let (host, port) = match authority.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>())) {
            Some((host, Ok(port))) => (host, port),
            Some(_) | None => (authority, usual),
        };
        // One with a user in it, or without a name, is not said again: what it means depends on who reads it.
        return Some(match host.parse::<HostPattern>() {
            Ok(host) => BadRule::Url { text: shown(), host: host.to_string(), port },
            Err(bad) => bad,
        });
    }
    if let Some((host, _)) = text.split_once('/') {
        return Some(match host.parse::<Host>() {
            Ok(host) => BadRule::PathBehind { text: shown(), host },
            Err(_) => BadRule::RangeAsHost { text: shown() },
        });
    }
    let (host, port) = text.split_once(':')?;
    let (host, port) = (host.parse().ok()?, port.parse().ok()?);
    Some(BadRule::PortBehind { text: shown(), host, port })
}

/// A public resolver opens by its own name and the word for it; no other pattern can have the word.
fn check_resolver(host: &HostPattern, resolver: ResolverUse) -> Result<(), BadRule> {
    match (host, resolver) {
        (HostPattern::Exact(name) | HostPattern::Under(name), ResolverUse::Refused)
            if name.is_public_resolver() =>
        {
            Err(BadRule::PublicResolver { name: name.clone() })
        }
        (HostPattern::Exact(_), _) | (_, ResolverUse::Refused) => Ok(()),
        (HostPattern::Under(_) | HostPattern::Address(_) | HostPattern::Any, _) => {
            Err(BadRule::ResolverUnnamed { host: host.to_string() })
        }
    }
}
