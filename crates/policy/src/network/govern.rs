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
}

impl NetworkRules {
    /// The rules that decide about a destination: those whose host describes it most closely, on this port. They decide
    /// alone: a rule that narrows `api.example.com` is not widened by one for `*.example.com`.
    pub fn governing(&self, to: &Destination, port: u16) -> Result<Vec<&AllowRule>, Ungoverned> {
        if self.mode == NetworkMode::Off {
            return Err(Ungoverned::Host);
        }
        let covering: Vec<&AllowRule> = self.allow.iter().filter(|rule| covers(rule.host(), to)).collect();
        if covering.is_empty() {
            return Err(Ungoverned::Host);
        }
        let on_port: Vec<&AllowRule> =
            covering.into_iter().filter(|rule| rule.ports().contains(&port)).collect();
        let closest = on_port.iter().map(|rule| rule.host().closeness()).max().ok_or(Ungoverned::Port)?;
        Ok(on_port.into_iter().filter(|rule| rule.host().closeness() == closest).collect())
    }

    /// The pattern that describes a name most closely, on whatever port: whether DNS answers for it.
    #[must_use]
    pub fn closest(&self, name: &Host) -> Option<&HostPattern> {
        if self.mode == NetworkMode::Off {
            return None;
        }
        let covering = self.allow.iter().map(AllowRule::host).filter(|host| host.covers(name));
        covering.max_by_key(|host| host.closeness())
    }
}

fn covers(pattern: &HostPattern, to: &Destination) -> bool {
    match (pattern, to) {
        (HostPattern::Address(allowed), Destination::Address(address)) => allowed == address,
        (_, Destination::Name(name)) => pattern.covers(name),
        (HostPattern::Exact(_) | HostPattern::Under(_), Destination::Address(_)) => false,
    }
}
