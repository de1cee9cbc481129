//! What the engine and a box's gateway say to each other, and what the warden hands to the gateway.
//!
//! Trust: guest. The gateway parses hostile bytes for a living, so what it says is read as if the box had said it: bounded,
//! and never believed about anything but its own box. One message is one packet of a sequenced socket.

mod lending;
mod record;
mod trust;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub use lending::{LentSecret, MAX_SECRET, MAX_STAND_INS, Trust, Veiled};
pub use record::{Carried, Door, Reason, Record};
pub use trust::{BUNDLE, BUNDLE_FILES, BUNDLE_VARIABLES, JAVA_STORES, MAX_AUTHORITY};

use crate::BoxId;
use crate::codec::{CodecError, Reader, Writer};

/// Largest message to or from a gateway.
pub const MAX_EGRESS_MESSAGE: usize = 128 * 1024;
/// Longest policy text that is sent along.
pub const MAX_EGRESS_POLICY: usize = 96 * 1024;
/// Longest address of a request: scheme, name and port.
pub const MAX_VISIT: usize = 300;
/// Most resolvers.
pub const MAX_RESOLVERS: usize = 8;

/// The interface of a box that has network.
pub const LINK_NAME: &str = "tun0";
/// The largest packet on the link: as large as TCP can use, because one packet costs the same whatever it carries.
pub const LINK_MTU: u32 = 65_520;
/// The gateway on the link: resolver, proxy, and nothing else.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// Whom programs of the box ask for names: the gateway, by its IPv4 address.
pub const RESOLV_CONF: &str = "# The gateway of this box.\nnameserver 198.18.0.1\n";
/// The box on the link.
pub const BOX_V4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
/// The prefix of every IPv6 address on the link, in front of 80 bits: `fd62:6c61:7374::/48` spells "blast".
pub const LINK_V6: [u16; 3] = [0xfd62, 0x6c61, 0x7374];
/// The gateway on the link.
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd62, 0x6c61, 0x7374, 0, 0, 0, 0, 1);
/// The box on the link.
pub const BOX_V6: Ipv6Addr = Ipv6Addr::new(0xfd62, 0x6c61, 0x7374, 0, 0, 0, 0, 2);
/// Where the gateway takes HTTP CONNECT, for programs that want a proxy.
pub const HTTP_PROXY_PORT: u16 = 3128;
/// Where the gateway takes SOCKS5, for programs that want a proxy.
pub const SOCKS_PORT: u16 = 1080;

/// What is sent along with the wire to a machine's network card, in the place of an interface of the warden's.
pub const CARD_WORD: &[u8] = b"c";
/// What is sent along with an interface and nothing else.
pub const INTERFACE_WORD: &[u8] = b"t";
/// What is sent along with an interface and the sockets behind it that take what the kernel carries: for IPv4, and for IPv6 where there is one.
pub const EARS_WORD: &[u8] = b"e";

/// What the engine tells a gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToGateway {
    /// Whose gateway it is and what it may let pass. First message; beside it the socket over which the warden sends
    /// the box's link.
    Open {
        /// The box.
        box_id: BoxId,
        /// The whole sealed policy as text: read and sealed again by the code that reads everybody's.
        policy: String,
        /// Where names are looked up.
        resolvers: Vec<SocketAddr>,
        /// By which way the box's connections come.
        way: Way,
    },
    /// Other rules from now on. Connections that they no longer allow are closed.
    Rules {
        /// The whole sealed policy as text.
        policy: String,
    },
    /// A secret of the box. One for each binding of the policy, in their order, directly after [`Self::Open`].
    Secret(LentSecret),
    /// The secret of a binding can be used for longer.
    Renewed {
        /// The binding, by its place in the policy.
        binding: u16,
        /// For how many seconds from now; 0 for not at all any more.
        seconds: u32,
    },
    /// A request of a box without a link. Beside it the stream that it comes on, and its answer goes back on.
    Visit {
        /// Scheme, name and port, as the guest wrote them.
        to: String,
    },
}

/// By which way the connections of a box come to its gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// As packets on its link.
    Link,
    /// As requests that the engine brings: [`ToGateway::Visit`].
    Calls,
}

/// What a gateway tells the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromGateway {
    /// It has the link, and has given up everything that it does not need.
    Ready {
        /// Whether it carries the box's connections packet by packet, because this kernel cannot carry them for it.
        by_packets: bool,
    },
    /// It cannot be the box's gateway; there will be no network.
    Failed {
        /// What was tried, and why it did not work.
        why: String,
    },
    /// New rules are in force.
    RulesTaken,
    /// What the box must know before it is made. Before [`Self::Ready`], where the policy has requests read.
    Trust(Trust),
    /// Something happened.
    Record(Record),
    /// The box is gone, and so is the gateway now: in order. One that ends without this was lost.
    Farewell,
}

impl ToGateway {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Self::Open { box_id, policy, resolvers, way } => {
                to.u8(1);
                to.bytes(box_id.as_str().as_bytes());
                to.bytes(policy.as_bytes());
                to.list(resolvers, |to, resolver| {
                    address(to, resolver.ip());
                    to.u16(resolver.port());
                });
                to.u8(match way {
                    Way::Link => 0,
                    Way::Calls => 1,
                });
            }
            Self::Rules { policy } => {
                to.u8(2);
                to.bytes(policy.as_bytes());
            }
            Self::Secret(secret) => {
                to.u8(3);
                secret.encode(&mut to);
            }
            Self::Renewed { binding, seconds } => {
                to.u8(4);
                to.u16(*binding);
                to.u32(*seconds);
            }
            Self::Visit { to: whom } => {
                to.u8(5);
                to.bytes(whom.as_bytes());
            }
        }
        to.finish()
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut from = Reader::new(bytes);
        let message = match from.u8()? {
            1 => Self::Open {
                box_id: from.text(64)?.parse().map_err(|_| CodecError::Invalid("box id"))?,
                policy: from.text(MAX_EGRESS_POLICY)?.to_owned(),
                resolvers: from
                    .list(MAX_RESOLVERS, |from| Ok(SocketAddr::new(read_address(from)?, from.u16()?)))?,
                way: match from.u8()? {
                    0 => Way::Link,
                    1 => Way::Calls,
                    other => return Err(CodecError::Unknown(u32::from(other), "way")),
                },
            },
            2 => Self::Rules { policy: from.text(MAX_EGRESS_POLICY)?.to_owned() },
            3 => Self::Secret(LentSecret::decode(&mut from)?),
            4 => Self::Renewed { binding: from.u16()?, seconds: from.u32()? },
            5 => Self::Visit { to: from.text(MAX_VISIT)?.to_owned() },
            other => return Err(CodecError::Unknown(u32::from(other), "message")),
        };
        from.end()?;
        Ok(message)
    }
}

impl FromGateway {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Self::Ready { by_packets } => {
                to.u8(1);
                to.u8(u8::from(*by_packets));
            }
            Self::Failed { why } => {
                to.u8(2);
                record::text(&mut to, why);
            }
            Self::RulesTaken => to.u8(3),
            Self::Trust(trust) => {
                to.u8(6);
                trust.encode(&mut to);
            }
            Self::Record(record) => {
                to.u8(4);
                record.encode(&mut to);
            }
            Self::Farewell => to.u8(5),
        }
        to.finish()
    }

    /// Reads a message.
    pub fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut from = Reader::new(bytes);
        let message = match from.u8()? {
            1 => Self::Ready {
                by_packets: match from.u8()? {
                    0 => false,
                    1 => true,
                    other => return Err(CodecError::Unknown(u32::from(other), "carrier")),
                },
            },
            2 => Self::Failed { why: record::read_text(&mut from)? },
            3 => Self::RulesTaken,
            4 => Self::Record(Record::decode(&mut from)?),
            5 => Self::Farewell,
            6 => Self::Trust(Trust::decode(&mut from)?),
            other => return Err(CodecError::Unknown(u32::from(other), "message")),
        };
        from.end()?;
        Ok(message)
    }
}

fn address(to: &mut Writer, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            to.u8(4);
            to.rest(&v4.octets());
        }
        IpAddr::V6(v6) => {
            to.u8(6);
            to.rest(&v6.octets());
        }
    }
}

fn read_address(from: &mut Reader<'_>) -> Result<IpAddr, CodecError> {
    match from.u8()? {
        4 => Ok(IpAddr::from(from.exactly::<4>()?)),
        6 => Ok(IpAddr::from(from.exactly::<16>()?)),
        other => Err(CodecError::Unknown(u32::from(other), "address family")),
    }
}
