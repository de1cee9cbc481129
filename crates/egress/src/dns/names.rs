//! Addresses that mean one name: the box connects to such an address, and the gateway knows which name was meant.
//!
//! Because no two names share one, nothing else has to be guessed from: not the order of questions, not a time to live,
//! not what some server on the internet answered.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use blastbox_policy::{Host, HostPattern};
use blastbox_wire::egress::{LINK_V6, Reason};

/// The first number that a name can have; those below are the gateway and the box.
const FIRST: u32 = 256;
/// How far behind it the first one may lie that is given out.
const OFFSETS: u32 = 1 << 16;
/// How many names there can be, wherever they begin in `198.18.0.0/15`.
const MOST: usize = (1 << 17) - (1 << 16) - 512;

/// Which name has which address, for the life of the box.
#[derive(Debug, Default)]
pub struct Names {
    /// How far the first one lies behind [`FIRST`].
    offset: u32,
    by_name: HashMap<Host, u32>,
    by_number: Vec<Host>,
    /// How many names were given out under each wildcard.
    under: HashMap<HostPattern, usize>,
}

impl Names {
    /// Of a gateway whose numbers begin somewhere: a program of a box that was copied may still know an address that another gateway gave it, and
    /// here that should mean nothing, rather than some other name that is allowed. Almost always: two runs of numbers may overlap.
    #[must_use]
    pub fn beginning_anywhere(random: [u8; 4]) -> Self {
        Self { offset: u32::from_ne_bytes(random) % OFFSETS, ..Self::default() }
    }

    /// The number of a name, given out now if it has none. `by` is the pattern that allows it; under a wildcard only
    /// `budget` names are given out, because each of them can carry data to whoever answers for the domain.
    pub fn number(&mut self, name: &Host, by: &HostPattern, budget: usize) -> Result<Number, Reason> {
        if let Some(number) = self.by_name.get(name) {
            return Ok(Number(*number));
        }
        if matches!(by, HostPattern::Under(_)) {
            let given = self.under.entry(by.clone()).or_default();
            if *given >= budget {
                return Err(Reason::NameBudget);
            }
            *given += 1;
        }
        if self.by_number.len() >= MOST {
            return Err(Reason::NameBudget);
        }
        let number = FIRST + self.offset + u32::try_from(self.by_number.len()).unwrap_or(0);
        self.by_name.insert(name.clone(), number);
        self.by_number.push(name.clone());
        Ok(Number(number))
    }

    /// The name that an address means, if it means one.
    #[must_use]
    pub fn name(&self, address: IpAddr) -> Option<&Host> {
        let number = Number::of(address)?.0.checked_sub(FIRST + self.offset)?;
        self.by_number.get(usize::try_from(number).ok()?)
    }
}

/// The number of a name, as it appears in its addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number(u32);

const POOL_V4: u32 = u32::from_be_bytes([198, 18, 0, 0]);

impl Number {
    /// As IPv4.
    #[must_use]
    pub fn v4(self) -> Ipv4Addr {
        Ipv4Addr::from(POOL_V4 | self.0)
    }

    /// As IPv6.
    #[must_use]
    pub fn v6(self) -> Ipv6Addr {
        let [a, b, c] = LINK_V6;
        let [high, low] = [self.0 >> 16, self.0 & 0xffff].map(|half| u16::try_from(half).unwrap_or(0));
        Ipv6Addr::new(a, b, c, 0, 0, 0, high, low)
    }

    fn of(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => {
                let bits = u32::from(v4);
                (bits & 0xfffe_0000 == POOL_V4).then_some(Self(bits & 0x1_ffff))
            }
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, high, low] = v6.segments();
                ([a, b, c] == LINK_V6 && [d, e, f] == [0, 0, 0])
                    .then_some(Self(u32::from(high) << 16 | u32::from(low)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        text.parse().unwrap()
    }

    #[test]
    fn each_name_has_addresses_of_its_own_that_lead_back_to_it() {
        let mut names = Names::default();
        let exact = HostPattern::Exact(host("a.test"));
        let a = names.number(&host("a.test"), &exact, 0).unwrap();
        let b = names.number(&host("b.test"), &exact, 0).unwrap();
        assert_ne!(a, b);
        assert_eq!(names.number(&host("a.test"), &exact, 0), Ok(a));
        for (number, name) in [(a, "a.test"), (b, "b.test")] {
            assert_eq!(names.name(number.v4().into()), Some(&host(name)));
            assert_eq!(names.name(number.v6().into()), Some(&host(name)));
        }
        for stranger in
            ["198.18.0.1", "198.18.0.2", "198.19.255.255", "198.17.1.0", "fd62:6c61:7374::1", "::1"]
        {
            assert_eq!(names.name(stranger.parse().unwrap()), None, "{stranger}");
        }
    }

    #[test]
    fn an_address_of_another_gateway_means_nothing() {
        let exact = HostPattern::Exact(host("a.test"));
        let [mut one, mut other] = [[1, 0, 0, 0], [0xff; 4]].map(Names::beginning_anywhere);
        let [a, b] = [&mut one, &mut other].map(|names| names.number(&host("a.test"), &exact, 0).unwrap());
        assert_ne!(a, b);
        assert_eq!((one.name(b.v4().into()), other.name(a.v6().into())), (None, None));
        assert_eq!(other.name(b.v4().into()), Some(&host("a.test")));
    }

    #[test]
    fn names_under_a_wildcard_run_out() {
        let mut names = Names::default();
        let under = HostPattern::Under(host("example.com"));
        for number in 0..5 {
            names.number(&host(&format!("a{number}.example.com")), &under, 5).unwrap();
        }
        assert_eq!(names.number(&host("b.example.com"), &under, 5), Err(Reason::NameBudget));
        assert!(names.number(&host("a0.example.com"), &under, 5).is_ok());
    }
}
