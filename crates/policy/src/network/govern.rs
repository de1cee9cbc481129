//! Which rules decide about a destination. Pure; the gateway and `policy would-allow` both ask here.

use std::fmt;
use std::net::IpAddr;

use super::{AllowRule, Host, HostPattern, NetworkMode, NetworkRules};

/// Where a box wants to go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Destination {
    /// To a name. Which address that is, the gateway finds out itself, after the decision.
    Name(Host),
    /// To an address that was given to no name.
    Address(IpAddr),
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.pad(name.as_str()),
            Self::Address(address) => f.pad(&address.to_string()),
        }
    }
}

/// Why no rule decides about a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ungoverned {
    /// No rule is about the host.
    Host,
    /// Rules are about the host, but not about this port.
    Port,
    /// The host is a public resolver, and only a wildcard is about it.
    Resolver,
}

impl NetworkRules {
    /// The rules that decide about a destination: those whose host describes it most closely, on this port. They decide
    /// alone: a rule that narrows `api.example.com` is not widened by one for `*.example.com`.
    pub fn governing(&self, to: &Destination, port: u16) -> Result<Vec<&AllowRule>, Ungoverned> {
        if self.mode == NetworkMode::Off {
            return Err(Ungoverned::Host);
        }
        let covering: Vec<&AllowRule> = self.allow.iter().filter(|rule| covers(rule.host(), to)).collect();
        let covering = match to {
            Destination::Name(name) => self.without_resolvers(name, covering)?,
            Destination::Address(_) => covering,
        };
        // Where everything is open, a rule only says more about its own ports.
        if self.mode == NetworkMode::Open && !covering.iter().any(|rule| rule.ports().contains(&port)) {
            return Ok(vec![&ANYTHING]);
        }
        if covering.is_empty() {
            return Err(Ungoverned::Host);
        }
        let on_port: Vec<&AllowRule> =
            covering.into_iter().filter(|rule| rule.ports().contains(&port)).collect();
        let closest = on_port.iter().map(|rule| rule.host().closeness()).max().ok_or(Ungoverned::Port)?;
        Ok(on_port.into_iter().filter(|rule| rule.host().closeness() == closest).collect())
    }

    /// The pattern that describes a name most closely, on whatever port: whether DNS answers for it.
    pub fn closest(&self, name: &Host) -> Result<&HostPattern, Ungoverned> {
        if self.mode == NetworkMode::Off {
            return Err(Ungoverned::Host);
        }
        let covering = self.allow.iter().filter(|rule| rule.host().covers(name)).collect();
        let covering = self.without_resolvers(name, covering)?;
        let open = (self.mode == NetworkMode::Open).then_some(&HostPattern::Any);
        let closest = covering.into_iter().map(AllowRule::host).max_by_key(|host| host.closeness());
        closest.or(open).ok_or(Ungoverned::Host)
    }

    /// What a wildcard opens is not opened as a resolver: such a host is named, with the word for it, or not reached. Where
    /// everything is open, the network is no boundary, and this would only look like one.
    fn without_resolvers<'r>(
        &self,
        name: &Host,
        covering: Vec<&'r AllowRule>,
    ) -> Result<Vec<&'r AllowRule>, Ungoverned> {
        if self.mode != NetworkMode::Allow || covering.is_empty() || !name.is_public_resolver() {
            return Ok(covering);
        }
        let named = |rule: &&AllowRule| matches!(rule.host(), HostPattern::Exact(_));
        let named: Vec<&AllowRule> = covering.into_iter().filter(named).collect();
        if named.is_empty() { Err(Ungoverned::Resolver) } else { Ok(named) }
    }
}

static ANYTHING: AllowRule = AllowRule::ANYTHING;

fn covers(pattern: &HostPattern, to: &Destination) -> bool {
    match (pattern, to) {
        (HostPattern::Address(allowed), Destination::Address(address)) => allowed == address,
        (_, Destination::Name(name)) => pattern.covers(name),
        (HostPattern::Any, Destination::Address(_)) => true,
        (HostPattern::Exact(_) | HostPattern::Under(_), Destination::Address(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use crate::{PolicyError, ThreatLevel, parse};

    use super::*;

    fn sealed(text: &str) -> Result<NetworkRules, PolicyError> {
        Ok(parse(text)?.seal()?.network().clone())
    }

    #[test]
    fn an_open_network_reaches_whatever_a_rule_says_no_more_about() {
        let text = "threat = \"medium\"\n[network]\nmode = \"dangerously-open\"\n\
                    allow = [{ host = \"api.example.com\", tls = \"inspect\", methods = [\"GET\"] }]\n";
        let rules = sealed(text).unwrap();
        let by = |to: &str, port| {
            let to = to.parse().map_or_else(|_| Destination::Name(to.parse().unwrap()), Destination::Address);
            rules.governing(&to, port).unwrap()[0].host().to_string()
        };
        assert_eq!(by("elsewhere.test", 22), "*");
        assert_eq!(by("93.184.216.34", 5432), "*");
        assert_eq!(
            (by("api.example.com", 443), by("api.example.com", 80)),
            ("api.example.com".into(), "*".into())
        );
        assert_eq!(rules.closest(&"elsewhere.test".parse().unwrap()), Ok(&HostPattern::Any));
    }

    #[test]
    fn an_open_network_is_a_word_of_its_own_and_nothing_for_the_highest_level() {
        assert!(sealed("threat = \"medium\"\n[network]\nmode = \"open\"\n").is_err());
        assert!(
            sealed("threat = \"medium\"\n[network]\nmode = \"allow\"\nallow = [{ host = \"*\" }]\n").is_err()
        );
        let critical = sealed("threat = \"critical\"\n[network]\nmode = \"dangerously-open\"\n");
        let level = ThreatLevel::Critical;
        let problem = critical.map_err(|error| error.problem().clone());
        assert!(
            matches!(problem, Err(PolicyError::OpenNotAtLevel { level: at }) if at == level),
            "{problem:?}"
        );
    }

    #[test]
    fn a_wildcard_does_not_open_a_public_resolver_and_its_own_name_with_the_word_does() {
        let text = |more: &str| {
            format!(
                "threat = \"medium\"\n[network]\nmode = \"allow\"\nallow = [{{ host = \"*.quad9.net\" }}{more}]\n"
            )
        };
        let name = |text: &str| Destination::Name(text.parse().unwrap());
        let wild = sealed(&text("")).unwrap();
        assert_eq!(wild.governing(&name("dns.quad9.net"), 443), Err(Ungoverned::Resolver));
        assert_eq!(wild.closest(&"dns.quad9.net".parse().unwrap()), Err(Ungoverned::Resolver));
        assert!(wild.governing(&name("www.quad9.net"), 443).is_ok());
        // On its own ports, and not on those of the wildcard.
        let rule = ", { host = \"dns.quad9.net\", ports = [5053], resolver = \"dangerously-allowed\" }";
        let named = sealed(&text(rule)).unwrap();
        assert!(named.governing(&name("dns.quad9.net"), 5053).is_ok());
        assert_eq!(named.governing(&name("dns.quad9.net"), 443), Err(Ungoverned::Port));
        assert_eq!(named.governing(&name("dns9.quad9.net"), 443), Err(Ungoverned::Resolver));
    }
}
