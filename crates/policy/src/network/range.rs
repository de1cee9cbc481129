//! Ranges of private addresses that a policy opens with the dangerous word.

use std::net::IpAddr;
use std::{fmt, str::FromStr};

use super::BadRule;
use super::floor::openable;
use super::rule::MOST_PORTS;

/// A range of addresses, written as `address/bits`; the bits after the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    base: IpAddr,
    bits: u8,
}

impl Network {
    /// Whether an address lies in the range. An IPv4 address never lies in an IPv6 range, however it is wrapped.
    #[must_use]
    pub fn holds(&self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(v4)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits)).unwrap_or(0);
                u32::from(base) & mask == u32::from(v4) & mask
            }
            (IpAddr::V6(base), IpAddr::V6(v6)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits)).unwrap_or(0);
                u128::from(base) & mask == u128::from(v6) & mask
            }
            _ => false,
        }
    }

    /// Whether it is a range of the host's own addresses. No range that can be opened is wider than those.
    pub(super) fn is_loopback(&self) -> bool {
        self.base.is_loopback()
    }

    /// Whether every address of `other` lies in this range.
    #[must_use]
    pub fn contains(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.holds(other.base)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.bits)
    }
}

impl FromStr for Network {
    type Err = BadRule;
    fn from_str(text: &str) -> Result<Self, BadRule> {
        let bad = || BadRule::Range { text: crate::words::clip(text) };
        let (base, bits) = text.split_once('/').ok_or_else(bad)?;
        let base: IpAddr = base.parse().map_err(|_| bad())?;
        let most = if base.is_ipv4() { 32 } else { 128 };
        let digits = !bits.is_empty() && bits.len() <= 3 && bits.bytes().all(|b| b.is_ascii_digit());
        let bits: u8 = bits.parse().ok().filter(|bits| digits && *bits <= most).ok_or_else(bad)?;
        // `10.1.2.3/8` is a slip: whoever wrote it meant one machine, or the whole range.
        let rest_is_zero = match base {
            IpAddr::V4(v4) => u32::from(v4).checked_shl(u32::from(bits)).unwrap_or(0) == 0,
            IpAddr::V6(v6) => u128::from(v6).checked_shl(u32::from(bits)).unwrap_or(0) == 0,
        };
        if rest_is_zero { Ok(Self { base, bits }) } else { Err(bad()) }
    }
}

/// A range of private addresses that names may lead to, on some ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrivateOpening {
    range: Network,
    ports: Vec<u16>,
}

impl PrivateOpening {
    /// Opens a range on some ports. Link-local, metadata and reserved addresses cannot be opened.
    pub fn new(range: &str, mut ports: Vec<u16>) -> Result<Self, BadRule> {
        let range: Network = range.parse()?;
        if !openable(&range) {
            return Err(BadRule::NotOpenable { range });
        }
        ports.sort_unstable();
        ports.dedup();
        if ports.is_empty() || ports.contains(&0) || ports.len() > MOST_PORTS {
            return Err(BadRule::Ports { host: range.to_string() });
        }
        Ok(Self { range, ports })
    }

    /// The range.
    #[must_use]
    pub fn range(&self) -> Network {
        self.range
    }

    /// The ports, in order, never empty.
    #[must_use]
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Whether it opens this address on this port.
    #[must_use]
    pub fn covers(&self, address: IpAddr, port: u16) -> bool {
        self.ports.contains(&port) && self.range.holds(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_reads_back_and_holds_what_it_says() {
        for text in ["10.0.0.0/8", "10.1.2.3/32", "0.0.0.0/0", "fd00::/8", "::1/128", "::/0"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        let range: Network = "10.1.0.0/16".parse().unwrap();
        assert!(range.holds("10.1.255.255".parse().unwrap()));
        assert!(!range.holds("10.2.0.0".parse().unwrap()));
        assert!(!range.holds("::ffff:10.1.0.1".parse().unwrap()));
    }

    #[test]
    fn slips_are_not_ranges() {
        for text in [
            "10.0.0.1/8",
            "10.0.0.0",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10/8",
            "fd00::/129",
            "fe80::1%eth0/64",
            "010.0.0.0/8",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
    }

    #[test]
    fn only_private_and_loopback_ranges_can_be_opened() {
        for text in ["10.1.0.0/16", "127.0.0.1/32", "192.168.0.0/16", "fd12::/16", "::1/128"] {
            assert!(PrivateOpening::new(text, vec![80]).is_ok(), "{text}");
        }
        for text in [
            "0.0.0.0/0",
            "169.254.0.0/16",
            "169.254.169.254/32",
            "8.0.0.0/7",
            "8.8.8.8/32",
            "fe80::/10",
            "::/0",
        ] {
            assert!(
                matches!(PrivateOpening::new(text, vec![80]), Err(BadRule::NotOpenable { .. })),
                "{text}"
            );
        }
    }
}
