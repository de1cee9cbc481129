//! Public resolvers that answer over HTTPS: who may be asked what a name is, is decided here and not by a wildcard.
//!
//! Where TLS is carried unread, a question to one of these looks like any other connection, and questions carry data out.
//! The table is short on purpose: those that programs and browsers bring along. A resolver that is not in it, behind a rule
//! that leads there unread, cannot be told from any other server.

use super::Host;
use crate::words::spoken;

/// Whether a host may be asked for names, over HTTPS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ResolverUse {
    /// It may not: names are asked of the gateway.
    #[default]
    Refused,
    /// It may, with everything that questions carry out.
    DangerouslyAllowed,
}

spoken!(ResolverUse, "use of a resolver", { Refused = "refused", DangerouslyAllowed = "dangerously-allowed" });

/// DNS is answered by the gateway alone: whoever reached another resolver, in the clear or by TLS, would have a tunnel.
const PORTS: [u16; 2] = [53, 853];

/// Whether what listens on this port answers names. No rule opens it, and `dangerously-open` does not either.
#[must_use]
pub fn is_resolver_port(port: u16) -> bool {
    PORTS.contains(&port)
}

/// Each stands for itself and every name under it.
const PUBLIC: [&str; 36] = [
    // Google
    "dns.google",
    "dns.google.com",
    "8888.google",
    // Cloudflare
    "cloudflare-dns.com",
    "cloudflare-gateway.com",
    "one.one.one.one",
    // Quad9
    "dns.quad9.net",
    "dns9.quad9.net",
    "dns10.quad9.net",
    "dns11.quad9.net",
    "dns12.quad9.net",
    // Cisco
    "doh.opendns.com",
    "doh.familyshield.opendns.com",
    "doh.sandbox.opendns.com",
    "doh.umbrella.com",
    "dns.umbrella.com",
    // AdGuard, NextDNS, Control D, CleanBrowsing
    "adguard-dns.com",
    "dns.adguard.com",
    "dns-family.adguard.com",
    "dns-unfiltered.adguard.com",
    "dns.nextdns.io",
    "dns.controld.com",
    "freedns.controld.com",
    "doh.cleanbrowsing.org",
    // Europe
    "dns.mullvad.net",
    "doh.mullvad.net",
    "dns.digitale-gesellschaft.ch",
    "dns.switch.ch",
    "doh.applied-privacy.net",
    "dns0.eu",
    "doh.dns.sb",
    // Asia
    "dns.alidns.com",
    "doh.pub",
    "doh.360.cn",
    "dns.twnic.tw",
    // Apple
    "doh.dns.apple.com",
];

impl Host {
    /// Whether it is one of the public resolvers that are known here.
    #[must_use]
    pub fn is_public_resolver(&self) -> bool {
        let under = |known: &str| {
            self.as_str().strip_suffix(known).is_some_and(|front| front.is_empty() || front.ends_with('.'))
        };
        PUBLIC.iter().any(|known| under(known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_resolver_is_one_with_whatever_stands_before_it_and_its_neighbour_is_not() {
        let known = |name: &str| name.parse::<Host>().unwrap().is_public_resolver();
        for name in
            ["dns.google", "DNS.Google.", "dns64.dns.google", "mozilla.cloudflare-dns.com", "one.one.one.one"]
        {
            assert!(known(name), "{name}");
        }
        for name in
            ["google", "xdns.google", "dns.google.evil.test", "one.one.one", "quad9.net", "nextdns.io"]
        {
            assert!(!known(name), "{name}");
        }
    }

    #[test]
    fn every_name_of_the_table_is_in_its_one_spelling() {
        for name in PUBLIC {
            assert_eq!(name.parse::<Host>().unwrap().as_str(), name);
        }
    }
}
