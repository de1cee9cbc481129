//! Why a rule of the network section means nothing, or too much.

use std::net::IpAddr;

use super::{BadHost, Below, Host, Network, Protocol};

/// Why a rule of the network section means nothing, or too much. Each says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRule {
    /// The host is not a name.
    #[error("{text:?} is not a host name: it {why}")]
    Host {
        /// As written.
        text: String,
        /// What is wrong with it.
        why: BadHost,
    },
    /// A wildcard in another place than the first label.
    #[error(
        "{text:?} is too broad or means nothing: a wildcard is one whole label at the front, as in \"*.example.com\""
    )]
    Wildcard {
        /// As written.
        text: String,
    },
    /// A wildcard under a name below which anybody can have one.
    #[error(
        "\"*.{apex}\" is too broad: anybody can have a name under {apex}; name the hosts, or one organisation's as in \"*.example.com\""
    )]
    TooBroad {
        /// The name after the wildcard.
        apex: Host,
    },
    /// A URL where a host was expected.
    #[error(
        "{text:?} is a URL, and a rule names a host: write \"{host}\"; a port goes beside it, as in --allow {host}:{port} on the \
         command line or ports = [{port}] in a policy"
    )]
    Url {
        /// As written.
        text: String,
        /// The host in it.
        host: String,
        /// The port that it leads to.
        port: u16,
    },
    /// A host with a path behind it.
    #[error(
        "{text:?} is not a host name but has a path behind one: write \"{host}\"; which paths pass there, a policy says with \
         tls = \"inspect\" and paths = [\"/v1/*\"]"
    )]
    PathBehind {
        /// As written.
        text: String,
        /// The host in it.
        host: Host,
    },
    /// A host and a port in a place for hosts.
    #[error("{text:?} is a host with a port: write host = \"{host}\", ports = [{port}]")]
    PortBehind {
        /// As written.
        text: String,
        /// The host in it.
        host: Host,
        /// The port in it.
        port: u16,
    },
    /// A range where a host was expected.
    #[error(
        "{text:?} is a range of addresses, not a host; private ranges open only under network.dangerously_allow_private"
    )]
    RangeAsHost {
        /// As written.
        text: String,
    },
    /// Not a range.
    #[error(
        "{text:?} is not a range of addresses; write the network address and its bits, as in \"10.1.0.0/16\""
    )]
    Range {
        /// As written.
        text: String,
    },
    /// A range that the dangerous word does not open.
    #[error(
        "{range} cannot be opened: only private and loopback ranges can, and link-local, metadata and reserved addresses never"
    )]
    NotOpenable {
        /// The range.
        range: Network,
    },
    /// An address that no policy opens.
    #[error("{address} can never be opened: it is a {class} address")]
    NeverOpen {
        /// The address.
        address: IpAddr,
        /// What it is.
        class: Below,
    },
    /// A private address in a rule, without the dangerous word.
    #[error(
        "{address} is a {class} address; it opens only if network.dangerously_allow_private covers it too, as in \
         {{ cidr = \"{address}/{bits}\", ports = [{port}] }}", bits = if address.is_ipv4() { 32 } else { 128 }
    )]
    PrivateAddress {
        /// The address.
        address: IpAddr,
        /// What it is.
        class: Below,
        /// The first port that is not covered.
        port: u16,
    },
    /// A name of this host itself, without the dangerous word.
    #[error(
        "{name} is a name of the host itself, as 127.0.0.1 is its address, and nothing there is open to boxes (in a box, {name} is the \
         box: --loopback gives it that); it opens only if network.dangerously_allow_private covers it too, as in \
         {{ cidr = \"127.0.0.1/32\", ports = [{port}] }}"
    )]
    LocalName {
        /// The name.
        name: Host,
        /// The first port that is not covered.
        port: u16,
    },
    /// Something else than raw TCP with an address.
    #[error(
        "a rule for the address {address} takes protocol = \"tcp\" only: without a name there is nothing to hold TLS or HTTP against; \
         name the host instead, as in \"example.com\", or write {{ host = \"{address}\", ports = [{port}], protocol = \"tcp\" }} \
         under network.allow in a policy: raw TCP, carried unread"
    )]
    AddressNeedsTcp {
        /// The address.
        address: IpAddr,
        /// The first port.
        port: u16,
    },
    /// Raw TCP without a port.
    #[error("the rule for {host} needs its ports, as in ports = [5432]: raw TCP has no usual one")]
    NoPort {
        /// The host.
        host: String,
    },
    /// Port 0, or too many ports.
    #[error("the rule for {host} takes 1 to 64 ports, each from 1 to 65535")]
    Ports {
        /// The host or range.
        host: String,
    },
    /// A resolver.
    #[error(
        "port {port} is DNS, which the gateway alone answers; a resolver outside would carry data out in its questions"
    )]
    Resolver {
        /// The port.
        port: u16,
    },
    /// A resolver that answers anybody over HTTPS.
    #[error(
        "{name} is a public resolver (DNS over HTTPS), and questions carry data out; a box asks its gateway. If the box is to ask \
         it all the same, name that host in a rule with resolver = \"dangerously-allowed\""
    )]
    PublicResolver {
        /// The host, or what the wildcard stands before.
        name: Host,
    },
    /// The word for resolvers where no host is named.
    #[error(
        "the rule for {host} has resolver = \"dangerously-allowed\", which takes one host by its whole name, as in \"dns.example.com\""
    )]
    ResolverUnnamed {
        /// The host pattern.
        host: String,
    },
    /// Methods or paths where nobody reads requests.
    #[error(
        "the rule for {host} has methods or paths, but with {because} nobody reads the requests; write tls = \"inspect\", or leave methods and paths out"
    )]
    RequestsUnread {
        /// The host.
        host: String,
        /// What keeps them unread.
        because: &'static str,
    },
    /// WebSockets where nobody reads requests.
    #[error(
        "the rule for {host} has protocol = \"ws\", which needs tls = \"inspect\"; with passthrough write protocol = \"https\": a WebSocket inside is not seen"
    )]
    WebSocketUnread {
        /// The host.
        host: String,
    },
    /// Inspection of a protocol without TLS.
    #[error(
        "the rule for {host} has tls = \"inspect\", but protocol = \"{protocol}\" has no TLS to inspect; leave tls out"
    )]
    NothingToInspect {
        /// The host.
        host: String,
        /// The protocol.
        protocol: Protocol,
    },
    /// Too many methods, paths or rules.
    #[error("the rule for {host} has more than {most} methods or paths")]
    TooMany {
        /// The host.
        host: String,
        /// How many are permitted.
        most: usize,
    },
    /// Not a method.
    #[error("{text:?} is not a method; write it in capitals, as in \"GET\"")]
    Method {
        /// As written.
        text: String,
    },
    /// Not a path pattern.
    #[error("{text:?} is not a path: a path {why}; write \"/v1/items\", or \"/v1/*\" for everything below")]
    Path {
        /// As written.
        text: String,
        /// What paths do.
        why: &'static str,
    },
    /// Two rules for one host and port that treat it differently.
    #[error("two rules for {host} port {port} disagree: one says {one}, the other {other}; make them one")]
    Disagree {
        /// The host pattern.
        host: String,
        /// The port.
        port: u16,
        /// What the first says.
        one: String,
        /// What the second says.
        other: String,
    },
    /// Rules without the mode that reads them.
    #[error(
        "network.mode = \"off\" reaches nothing, but rules are there; write mode = \"allow\", or remove them"
    )]
    RulesWhileOff,
    /// A mode without rules.
    #[error(
        "network.mode = \"allow\" needs at least one [[network.allow]] rule; without one, write mode = \"off\""
    )]
    NothingAllowed,
    /// Too many rules.
    #[error("more than {most} rules")]
    TooManyRules {
        /// How many are permitted.
        most: usize,
    },
    /// Rules that are too long together.
    #[error("the hosts, methods and paths of all rules have more than {most} characters together")]
    TooLong {
        /// How many are permitted.
        most: usize,
    },
}
