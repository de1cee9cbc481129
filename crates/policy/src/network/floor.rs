//! The address floor: where no name may lead, whoever answers for it in DNS.
//!
//! An address that carries another one inside (mapped, NAT64, 6to4) is judged by both. What is not known to be a
//! public unicast address is below the floor.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Network;
use crate::words::spoken;

/// Why an address is below the floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Below {
    /// `0.0.0.0/8`, `::`: this host, by another spelling.
    Unspecified,
    /// `127.0.0.0/8`, `::1`.
    Loopback,
    /// RFC 1918, carrier-grade NAT, unique local and site-local addresses.
    Private,
    /// `169.254.0.0/16`, `fe80::/10`.
    LinkLocal,
    /// Where clouds hand out credentials to whoever asks. No policy opens it.
    Metadata,
    /// Multicast and broadcast.
    Multicast,
    /// Documentation, benchmarking, protocol assignments, tunnels, unassigned.
    Reserved,
}

spoken!(Below, "address class", {
    Unspecified = "unspecified",
    Loopback = "loopback",
    Private = "private",
    LinkLocal = "link-local",
    Metadata = "metadata",
    Multicast = "multicast",
    Reserved = "reserved",
});

impl Below {
    /// Whether `dangerously_allow_private` may open addresses of this class.
    #[must_use]
    pub const fn can_be_opened(self) -> bool {
        match self {
            Self::Loopback | Self::Private => true,
            Self::Unspecified | Self::LinkLocal | Self::Metadata | Self::Multicast | Self::Reserved => false,
        }
    }
}

/// Metadata services of clouds that do not lie in a link-local range, or that lie in a range which a policy can open.
const METADATA_V4: [Ipv4Addr; 5] = [
    Ipv4Addr::new(169, 254, 169, 254), // AWS, Azure, GCP, OpenStack, DigitalOcean, Oracle
    Ipv4Addr::new(169, 254, 170, 2),   // AWS ECS task credentials
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(168, 63, 129, 16),   // Azure's wire server, a public address
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle, older
];
const METADATA_V6: [Ipv6Addr; 7] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), // AWS
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),  // GCP
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),  // AWS EKS pod identity
    Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42),   // Scaleway
    Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), // Oracle
    Ipv6Addr::new(0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1), // Akamai (Linode)
    Ipv6Addr::new(0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200), // Alibaba
];

/// Whether an address is below the floor, and as what.
#[must_use]
pub fn below_floor(address: IpAddr) -> Option<Below> {
    match address {
        IpAddr::V4(v4) => below_v4(v4),
        IpAddr::V6(v6) => below_v6(v6),
    }
}

fn below_v4(v4: Ipv4Addr) -> Option<Below> {
    let [a, b, c, _] = v4.octets();
    Some(match (a, b, c) {
        _ if METADATA_V4.contains(&v4) => Below::Metadata,
        (0, ..) => Below::Unspecified,
        (127, ..) => Below::Loopback,
        (10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => Below::Private,
        (169, 254, _) => Below::LinkLocal,
        (192, 0, 0 | 2) | (192, 88, 99) | (198, 18..=19, _) | (198, 51, 100) | (203, 0, 113) => {
            Below::Reserved
        }
        (255, 255, 255) | (224..=239, ..) => Below::Multicast,
        (240.., ..) => Below::Reserved,
        _ => return None,
    })
}

fn below_v6(v6: Ipv6Addr) -> Option<Below> {
    if METADATA_V6.contains(&v6) {
        return Some(Below::Metadata);
    }
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let v4 = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        Ipv4Addr::new(a, b, c, d)
    };
    match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0] if g == 0 && h == 0 => return Some(Below::Unspecified),
        [0, 0, 0, 0, 0, 0] if g == 0 && h == 1 => return Some(Below::Loopback),
        // Forms that carry an IPv4 address: never dialled as they are, so a public one inside does not help.
        [0, 0, 0, 0, 0, 0 | 0xffff] | [0x64, 0xff9b, 0, 0, 0, 0] | [0, 0, 0, 0, 0xffff, 0] => {
            return Some(below_v4(v4(g, h)).unwrap_or(Below::Reserved));
        }
        [0x64, 0xff9b, 1, ..] => return Some(below_v4(v4(g, h)).unwrap_or(Below::Reserved)),
        [0x2002, high, low, ..] => return Some(below_v4(v4(high, low)).unwrap_or(Below::Reserved)),
        _ => {}
    }
    Some(match a {
        0xfc00..=0xfdff | 0xfec0..=0xfeff => Below::Private,
        0xfe80..=0xfebf => Below::LinkLocal,
        0xff00..=0xffff => Below::Multicast,
        // Of global unicast (2000::/3): Teredo and other protocol assignments, documentation.
        0x2001 if b < 0x200 || b == 0xdb8 => Below::Reserved,
        0x3fff if b < 0x1000 => Below::Reserved,
        0x2000..=0x3fff => return None,
        _ => Below::Reserved,
    })
}

/// Whether an address may be dialled: above the floor, or opened by name on this port.
pub fn may_dial(address: IpAddr, port: u16, opened: &[super::PrivateOpening]) -> Result<(), Below> {
    let Some(class) = below_floor(address) else { return Ok(()) };
    // A carried address is never the one that is dialled: mapped and NAT64 forms stay closed whatever is opened.
    let opening = |open: &&super::PrivateOpening| open.covers(address, port);
    if class.can_be_opened() && opened.iter().any(|open| opening(&open)) { Ok(()) } else { Err(class) }
}

/// Whether every address of a range is below the floor and of a class that can be opened.
pub(super) fn openable(range: &Network) -> bool {
    let opens = |text: &str| text.parse::<Network>().is_ok_and(|whole| whole.contains(range));
    ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "fc00::/7", "::1/128"]
        .into_iter()
        .any(opens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Option<Below> {
        below_floor(text.parse().unwrap())
    }

    #[test]
    fn public_addresses_are_above() {
        for text in
            ["1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "172.32.0.1", "2606:4700::1", "2a00::1"]
        {
            assert_eq!(class(text), None, "{text}");
        }
    }

    #[test]
    fn every_range_of_the_floor_is_below_at_both_ends() {
        for (text, below) in [
            ("0.0.0.0", Below::Unspecified),
            ("0.255.255.255", Below::Unspecified),
            ("10.0.0.0", Below::Private),
            ("10.255.255.255", Below::Private),
            ("100.64.0.0", Below::Private),
            ("100.127.255.255", Below::Private),
            ("100.100.100.200", Below::Metadata),
            ("127.0.0.1", Below::Loopback),
            ("127.255.255.255", Below::Loopback),
            ("169.254.0.1", Below::LinkLocal),
            ("169.254.169.254", Below::Metadata),
            ("169.254.170.2", Below::Metadata),
            ("168.63.129.16", Below::Metadata),
            ("172.16.0.0", Below::Private),
            ("172.31.255.255", Below::Private),
            ("192.0.0.1", Below::Reserved),
            ("192.0.0.192", Below::Metadata),
            ("192.0.2.1", Below::Reserved),
            ("192.88.99.1", Below::Reserved),
            ("192.168.255.255", Below::Private),
            ("198.18.0.0", Below::Reserved),
            ("198.19.255.255", Below::Reserved),
            ("198.51.100.7", Below::Reserved),
            ("203.0.113.7", Below::Reserved),
            ("224.0.0.1", Below::Multicast),
            ("240.0.0.1", Below::Reserved),
            ("255.255.255.255", Below::Multicast),
            ("::", Below::Unspecified),
            ("::1", Below::Loopback),
            ("::7f00:1", Below::Loopback),
            ("::ffff:127.0.0.1", Below::Loopback),
            ("::ffff:169.254.169.254", Below::Metadata),
            ("::ffff:8.8.8.8", Below::Reserved),
            ("::ffff:0:10.0.0.1", Below::Private),
            ("64:ff9b::a9fe:a9fe", Below::Metadata),
            ("64:ff9b:1::7f00:1", Below::Loopback),
            ("2002:7f00:1::", Below::Loopback),
            ("2002:a9fe:a9fe::1", Below::Metadata),
            ("2001::1", Below::Reserved),
            ("2001:1ff:ffff::", Below::Reserved),
            ("2001:db8::1", Below::Reserved),
            ("3fff::1", Below::Reserved),
            ("5f00::1", Below::Reserved),
            ("100::1", Below::Reserved),
            ("fc00::1", Below::Private),
            ("fdff::1", Below::Private),
            ("fd00:ec2::254", Below::Metadata),
            ("fd20:ce::254", Below::Metadata),
            ("fd00:ec2::23", Below::Metadata),
            ("fd00:42::42", Below::Metadata),
            ("fd00:c1::a9fe:a9fe", Below::Metadata),
            ("fd00:c1::a9fe:a9ff", Below::Private),
            ("fd00:a9fe:a9fe::1", Below::Metadata),
            ("fd00:a9fe:a9fe::2", Below::Private),
            ("fd00:100::100:200", Below::Metadata),
            ("fd00:100::100:201", Below::Private),
            ("fe80::1", Below::LinkLocal),
            ("fec0::1", Below::Private),
            ("ff02::1", Below::Multicast),
            ("4000::1", Below::Reserved),
        ] {
            assert_eq!(class(text), Some(below), "{text}");
        }
    }

    #[test]
    fn metadata_stays_closed_whatever_is_opened() {
        let opened = [super::super::PrivateOpening::new("100.64.0.0/10", vec![80]).unwrap()];
        assert_eq!(may_dial("100.64.0.1".parse().unwrap(), 80, &opened), Ok(()));
        assert_eq!(may_dial("100.64.0.1".parse().unwrap(), 81, &opened), Err(Below::Private));
        assert_eq!(may_dial("100.100.100.200".parse().unwrap(), 80, &opened), Err(Below::Metadata));
        let opened = [super::super::PrivateOpening::new("fd00::/8", vec![80]).unwrap()];
        assert_eq!(may_dial("fd00:42::43".parse().unwrap(), 80, &opened), Ok(()));
        assert_eq!(may_dial("fd00:100::100:201".parse().unwrap(), 80, &opened), Ok(()));
        let opened = [super::super::PrivateOpening::new("fc00::/7", vec![80]).unwrap()];
        for service in METADATA_V6 {
            assert_eq!(may_dial(service.into(), 80, &opened), Err(Below::Metadata), "{service}");
        }
    }
}
