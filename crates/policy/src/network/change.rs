//! Rules that change while a box lives: another policy, sealed like the first.

use super::{AllowRule, BadRule, Host, HostPattern, NetworkMode, Protocol, RuleParts};
use crate::{BadBinding, Draft, PolicyError, SealedPolicy, SecretName};

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleChange {
    /// What this rule names may be reached from now on.
    Allow(AllowRule),
    /// Rules for exactly these hosts go, on one port or on all of theirs.
    Deny(Denied),
}

/// What is not to be reached any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The hosts, as the rule names them.
    pub host: HostPattern,
    /// The port; `None` for all that the rules name.
    pub port: Option<u16>,
}

/// Why rules do not change.
#[derive(Debug, thiserror::Error)]
pub enum BadChange {
    /// Nothing to take away.
    #[error("no rule names {what}, so there is nothing to take away")]
    NotNamed {
        /// What was to be taken away.
        what: String,
    },
    /// There are no rules that deny: what a wildcard allows goes with the wildcard.
    #[error("{host} is allowed by \"{by}\"; take that rule away, and allow what is to stay")]
    Wider {
        /// What was to be taken away.
        host: String,
        /// The rule that allows it.
        by: String,
    },
    /// A rule would narrow what is open without having been asked to, and none takes anything away from it.
    #[error(
        "the network is \"dangerously-open\", which no rule widens or narrows: make a box whose rules name what it may reach"
    )]
    Open,
    /// A binding needs the rule that would go.
    #[error(
        "secret {secret} is bound to {host}:{port}: as long as the box lives it is, and the rule that leads there stays"
    )]
    Bound {
        /// The secret.
        secret: SecretName,
        /// Where it is bound.
        host: Host,
        /// The port.
        port: u16,
    },
    /// The policy would not hold.
    #[error(transparent)]
    Policy(Box<PolicyError>),
}

impl From<PolicyError> for BadChange {
    fn from(error: PolicyError) -> Self {
        match error {
            // What held before leads nowhere now: a rule went, and nobody wants to hear which one to write into a file.
            PolicyError::Credentials(BadBinding::Unreachable { secret, host, port }) => {
                Self::Bound { secret, host, port }
            }
            other => Self::Policy(Box::new(other)),
        }
    }
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`.
fn host_and_port(text: &str) -> Result<(HostPattern, Option<u16>), BadRule> {
    let digits = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    // An address of six groups or more has colons of its own; with a port it stands in brackets.
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        Some((host, port)) => (host, Some(port)),
        None => match text.split_once(':') {
            Some((host, port)) if digits(port) => (host, Some(port)),
            _ => (text, None),
        },
    };
    let port = port.map(|port| port.parse().map_err(|_| BadRule::Ports { host: crate::words::clip(host) }));
    Ok((host.parse()?, port.transpose()?))
}

impl AllowRule {
    /// The rule that `HOST[:PORT]` stands for: HTTPS, carried unread, or raw TCP on another port than 443.
    pub fn short(text: &str) -> Result<Self, BadRule> {
        let (host, port) = host_and_port(text)?;
        let parts = match port {
            None | Some(443) => RuleParts::default(),
            Some(port) => RuleParts { ports: vec![port], protocol: Protocol::Tcp, ..RuleParts::default() },
        };
        Self::new(host, parts)
    }
}

impl Denied {
    /// What `HOST[:PORT]` stands for.
    pub fn short(text: &str) -> Result<Self, BadRule> {
        let (host, port) = host_and_port(text)?;
        Ok(Self { host, port })
    }

    fn covers(&self, rule: &AllowRule) -> bool {
        *rule.host() == self.host && self.port.is_none_or(|port| rule.ports().contains(&port))
    }
}

impl SealedPolicy {
    /// The policy with other rules, or why it would not hold. Without the last rule the network is off; without changes
    /// it is the same.
    pub fn changed(&self, changes: &[RuleChange]) -> Result<Self, BadChange> {
        if changes.is_empty() {
            return Ok(self.clone());
        }
        match self.network().mode {
            NetworkMode::Open => return Err(BadChange::Open),
            NetworkMode::Off | NetworkMode::Allow => {}
        }
        let mut draft = self.draft();
        for change in changes {
            match change {
                // Said twice is said once.
                RuleChange::Allow(rule) if draft.network.allow.contains(rule) => {}
                RuleChange::Allow(rule) => draft = draft.allow(rule.clone()),
                RuleChange::Deny(denied) => deny(&mut draft, denied)?,
            }
        }
        if draft.network.allow.is_empty() {
            draft.network.mode = NetworkMode::Off;
            draft.network.dangerously_allow_private.clear();
        }
        Ok(draft.seal()?)
    }
}

fn deny(draft: &mut Draft, denied: &Denied) -> Result<(), BadChange> {
    let rules = &mut draft.network;
    let what = denied.port.map_or_else(|| denied.host.to_string(), |port| format!("{}:{port}", denied.host));
    let wider = |rule: &&AllowRule| match (&denied.host, rule.host()) {
        (HostPattern::Exact(name), HostPattern::Under(_)) => rule.host().covers(name),
        (HostPattern::Under(apex), HostPattern::Under(other)) => apex.is_under(other),
        _ => false,
    };
    let wider = rules
        .allow
        .iter()
        .find(|rule| wider(rule) && denied.port.is_none_or(|port| rule.ports().contains(&port)));
    if let Some(wider) = wider {
        return Err(BadChange::Wider { host: what, by: wider.host().to_string() });
    }
    if !rules.allow.iter().any(|rule| denied.covers(rule)) {
        return Err(BadChange::NotNamed { what });
    }
    let left = rules.allow.iter().filter_map(|rule| match denied.port {
        _ if !denied.covers(rule) => Some(rule.clone()),
        Some(port) => rule.without(port),
        None => None,
    });
    rules.allow = left.collect();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Destination;
    use super::*;
    use crate::parse;

    fn policy(allow: &str) -> SealedPolicy {
        let text = format!("threat = \"medium\"\n[network]\nmode = \"allow\"\nallow = [{allow}]\n");
        parse(&text).unwrap().seal().unwrap()
    }

    fn allow(text: &str) -> RuleChange {
        RuleChange::Allow(AllowRule::short(text).unwrap())
    }

    fn deny(text: &str) -> RuleChange {
        RuleChange::Deny(Denied::short(text).unwrap())
    }

    fn reaches(policy: &SealedPolicy, name: &str, port: u16) -> bool {
        policy.network().governing(&Destination::Name(name.parse().unwrap()), port).is_ok()
    }

    #[test]
    fn a_rule_comes_and_goes_and_the_digest_with_it() {
        let before = policy("{ host = \"a.example.com\" }");
        let after = before.changed(&[allow("db.example.com:5432"), allow("a.example.com")]).unwrap();
        assert!(reaches(&after, "db.example.com", 5432) && reaches(&after, "a.example.com", 443));
        assert_ne!(before.digest(), after.digest());
        let back = after.changed(&[deny("db.example.com:5432")]).unwrap();
        assert_eq!(back.digest(), before.digest());
    }

    #[test]
    fn one_port_goes_and_the_others_stay() {
        let before = policy("{ host = \"a.example.com\", ports = [443, 8443] }");
        let after = before.changed(&[deny("a.example.com:8443")]).unwrap();
        assert!(reaches(&after, "a.example.com", 443) && !reaches(&after, "a.example.com", 8443));
    }

    #[test]
    fn without_the_last_rule_the_network_is_off_and_can_be_opened_again() {
        let off = policy("{ host = \"a.example.com\" }").changed(&[deny("a.example.com")]).unwrap();
        assert_eq!(off.network().mode, NetworkMode::Off);
        assert!(!reaches(&off, "a.example.com", 443));
        assert!(reaches(&off.changed(&[allow("b.example.com")]).unwrap(), "b.example.com", 443));
    }

    #[test]
    fn what_only_a_wildcard_allows_is_not_silently_left_open() {
        let rules = policy("{ host = \"*.example.com\" }, { host = \"a.example.com\" }");
        let error = rules.changed(&[deny("a.example.com")]).unwrap_err();
        assert!(matches!(&error, BadChange::Wider { by, .. } if by == "*.example.com"), "{error}");
        let error = rules.changed(&[deny("other.test")]).unwrap_err();
        assert!(matches!(error, BadChange::NotNamed { .. }), "{error}");
        assert!(rules.changed(&[deny("*.example.com")]).is_ok());
    }

    #[test]
    fn an_open_network_is_neither_closed_nor_narrowed_by_a_rule() {
        let open =
            parse("threat = \"medium\"\n[network]\nmode = \"dangerously-open\"\n").unwrap().seal().unwrap();
        assert_eq!(open.changed(&[]).unwrap(), open);
        for change in [allow("a.example.com"), deny("a.example.com")] {
            assert!(matches!(open.changed(&[change]), Err(BadChange::Open)));
        }
        let named = policy("{ host = \"a.example.com\" }");
        assert_eq!(named.changed(&[]).unwrap(), named);
    }

    #[test]
    fn a_rule_that_a_secret_needs_stays_and_the_binding_is_named() {
        let text = "threat = \"medium\"\n[network]\nmode = \"allow\"\n\
            allow = [{ host = \"a.example.com\", tls = \"inspect\" }, { host = \"b.example.com\" }]\n\
            [credentials]\nmode = \"brokered\"\nbind = [{ secret = \"mine\", host = \"a.example.com\" }]\n";
        let rules = parse(text).unwrap().seal().unwrap();
        let error = rules.changed(&[deny("a.example.com")]).unwrap_err();
        assert!(matches!(&error, BadChange::Bound { port: 443, .. }), "{error}");
        assert!(error.to_string().contains("secret mine is bound to a.example.com:443"), "{error}");
        assert!(rules.changed(&[deny("b.example.com")]).is_ok());
    }

    #[test]
    fn a_change_that_would_not_seal_is_refused_whole() {
        let rules = policy("{ host = \"a.example.com\", tls = \"inspect\" }");
        // The same host and port would be treated in two ways.
        assert!(matches!(rules.changed(&[allow("a.example.com")]), Err(BadChange::Policy(_))));
        assert!(AllowRule::short("*.com").is_err() && AllowRule::short("a.test:53").is_err());
        assert!(matches!(rules.changed(&[allow("10.0.0.1:80")]), Err(BadChange::Policy(_))));
    }
}
