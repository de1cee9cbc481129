//! The decision: may this go there, by which rule. Pure: no clock, no I/O, no names looked up.

use blastbox_policy::{
    AllowRule, Host, NetworkRules, Protocol, ResolverUse, TlsMode, Ungoverned, is_resolver_port,
};
use blastbox_wire::egress::Reason;

pub use blastbox_policy::Destination as Target;

/// What a box wants.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Where to.
    pub target: &'a Target,
    /// On which port.
    pub port: u16,
    /// What is known about what it will say there.
    pub said: Said<'a>,
}

/// What is known about what a box says to its target.
#[derive(Debug, Clone, Copy)]
pub enum Said<'a> {
    /// Nothing yet: the connection itself is asked for.
    Nothing,
    /// The first message of TLS.
    Hello(Hello<'a>),
    /// One HTTP request.
    Request {
        /// The method, as sent.
        method: &'a str,
        /// The canonical path, without query.
        path: &'a str,
        /// Whether the connection is to become something else than HTTP.
        upgrade: Upgrade,
    },
}

/// The server name of a TLS connection.
#[derive(Debug, Clone, Copy)]
pub enum Hello<'a> {
    /// In the open.
    Name(&'a Host),
    /// There is none, or it is no host name.
    NoName,
    /// Encrypted (ECH): what is in the open is not what is meant.
    Encrypted,
}

/// Whether a request asks for the connection to become something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upgrade {
    /// It does not.
    No,
    /// To a WebSocket.
    WebSocket,
    /// To anything else: `h2c`, CONNECT through the target.
    Other,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// It may, as described.
    Allow(Allowed),
    /// It may not.
    Deny(Reason),
}

/// Permission to make one connection. Only [`decide`] makes it, so whoever dials has asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    target: Target,
    port: u16,
    rule: String,
    protocol: Protocol,
    tls: TlsMode,
    resolver: ResolverUse,
}

impl Allowed {
    /// Where to.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }
    /// On which port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
    /// The rule, by its host as written.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }
    /// What may be spoken.
    #[must_use]
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }
    /// What happens to TLS.
    #[must_use]
    pub fn tls(&self) -> TlsMode {
        self.tls
    }
    /// Whether the target may be asked for names.
    #[must_use]
    pub fn resolver(&self) -> ResolverUse {
        self.resolver
    }
}

/// Decides. The rules that describe the target most closely decide alone: see [`NetworkRules::governing`].
pub fn decide(rules: &NetworkRules, ask: &Ask<'_>) -> Verdict {
    // No rule can name such a port; but where everything is open, no rule is needed.
    if is_resolver_port(ask.port) {
        return Verdict::Deny(Reason::Resolver);
    }
    let governing = match rules.governing(ask.target, ask.port) {
        Ok(governing) => governing,
        Err(Ungoverned::Host) if matches!(ask.target, Target::Address(_)) => {
            return Verdict::Deny(Reason::AddressNotAllowed);
        }
        Err(why) => return Verdict::Deny(unnamed(why)),
    };
    let mut refused = Reason::PortNotAllowed;
    for rule in governing {
        match speaks(rule, ask) {
            Ok(()) => {
                return Verdict::Allow(Allowed {
                    target: ask.target.clone(),
                    port: ask.port,
                    rule: rule.host().to_string(),
                    protocol: rule.protocol(),
                    tls: rule.tls(),
                    resolver: rule.resolver(),
                });
            }
            Err(reason) => refused = reason,
        }
    }
    Verdict::Deny(refused)
}

/// Why no rule decides about a name, as it is told.
pub(crate) fn unnamed(why: Ungoverned) -> Reason {
    match why {
        Ungoverned::Host => Reason::HostNotAllowed,
        Ungoverned::Port => Reason::PortNotAllowed,
        Ungoverned::Resolver => Reason::Resolver,
    }
}

/// Whether the rule lets the box say this.
fn speaks(rule: &AllowRule, ask: &Ask<'_>) -> Result<(), Reason> {
    match ask.said {
        Said::Nothing => Ok(()),
        Said::Hello(hello) => match (hello, ask.target) {
            (Hello::Encrypted, _) => Err(Reason::EncryptedName),
            (Hello::NoName, _) => Err(Reason::NameMissing),
            (Hello::Name(name), Target::Name(target)) if name == target => Ok(()),
            (Hello::Name(_), _) => Err(Reason::NameMismatch),
        },
        Said::Request { method, path, upgrade } => {
            let upgrades = match upgrade {
                Upgrade::No => true,
                Upgrade::WebSocket => rule.protocol() == Protocol::Ws,
                Upgrade::Other => false,
            };
            if !rule.is_inspected() {
                Err(Reason::InspectionNotBuilt)
            } else if !rule.methods().is_empty() && !rule.methods().iter().any(|allowed| allowed == method) {
                Err(Reason::MethodNotAllowed)
            } else if !rule.paths().is_empty() && !rule.paths().iter().any(|allowed| allowed.covers(path)) {
                Err(Reason::PathNotAllowed)
            } else if !upgrades {
                Err(Reason::UpgradeNotAllowed)
            } else {
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blastbox_policy::{Draft, ThreatLevel, parse};

    fn rules(text: &str) -> NetworkRules {
        // Not sealed: rules that need inspection are judged here whether or not this version can inspect.
        let text = format!("threat = \"medium\"\n[network]\nmode = \"allow\"\n{text}");
        let document = parse(&text).unwrap();
        document.network_rules().clone()
    }

    fn name(text: &str) -> Target {
        Target::Name(text.parse().unwrap())
    }

    fn connect(rules: &NetworkRules, target: &Target, port: u16) -> Result<String, Reason> {
        match decide(rules, &Ask { target, port, said: Said::Nothing }) {
            Verdict::Allow(allowed) => Ok(allowed.rule),
            Verdict::Deny(reason) => Err(reason),
        }
    }

    #[test]
    fn nothing_is_allowed_until_a_rule_names_it() {
        let off = Draft::at(ThreatLevel::High).network_rules().clone();
        assert_eq!(connect(&off, &name("example.com"), 443), Err(Reason::HostNotAllowed));
    }

    #[test]
    fn names_match_whole_labels_and_nothing_that_only_looks_like_them() {
        let rules = rules("allow = [{ host = \"api.github.com\" }, { host = \"*.example.org\" }]");
        assert_eq!(connect(&rules, &name("api.github.com"), 443), Ok("api.github.com".to_owned()));
        assert_eq!(connect(&rules, &name("a.b.example.org"), 443), Ok("*.example.org".to_owned()));
        for stranger in
            ["api.github.com.evil.test", "xapi.github.com", "github.com", "example.org", "badexample.org"]
        {
            assert_eq!(connect(&rules, &name(stranger), 443), Err(Reason::HostNotAllowed), "{stranger}");
        }
        assert_eq!(connect(&rules, &name("api.github.com"), 22), Err(Reason::PortNotAllowed));
    }

    #[test]
    fn no_other_resolver_is_reached_by_any_door_not_even_where_everything_is_open() {
        let open = parse("threat = \"medium\"\n[network]\nmode = \"dangerously-open\"\n").unwrap();
        let open = open.network_rules().clone();
        let listed = rules("allow = [{ host = \"dns.example.org\" }]");
        let address = Target::Address("192.0.2.1".parse().unwrap());
        for target in [name("dns.example.org"), address] {
            for port in [53, 853] {
                assert_eq!(connect(&open, &target, port), Err(Reason::Resolver), "{target}:{port}");
                assert_eq!(connect(&listed, &target, port), Err(Reason::Resolver), "{target}:{port}");
            }
            for port in [52, 54, 443, 852, 854] {
                assert!(connect(&open, &target, port).is_ok(), "{target}:{port}");
            }
        }
    }

    #[test]
    fn an_address_is_allowed_only_by_itself() {
        let rules = rules("allow = [{ host = \"93.184.216.34\", ports = [5432], protocol = \"tcp\" }]");
        let address = |text: &str| Target::Address(text.parse().unwrap());
        assert!(connect(&rules, &address("93.184.216.34"), 5432).is_ok());
        assert_eq!(connect(&rules, &address("93.184.216.34"), 443), Err(Reason::PortNotAllowed));
        assert_eq!(connect(&rules, &address("93.184.216.35"), 5432), Err(Reason::AddressNotAllowed));
        assert_eq!(connect(&rules, &address("::ffff:93.184.216.34"), 5432), Err(Reason::AddressNotAllowed));
    }

    #[test]
    fn a_narrow_rule_is_not_widened_by_a_wildcard() {
        let rules = rules(
            "allow = [{ host = \"*.example.org\" }, \
             { host = \"api.example.org\", tls = \"inspect\", methods = [\"GET\"] }]",
        );
        let target = name("api.example.org");
        let Verdict::Allow(allowed) =
            decide(&rules, &Ask { target: &target, port: 443, said: Said::Nothing })
        else {
            panic!("not allowed");
        };
        assert_eq!(allowed.tls(), TlsMode::Inspect);
        let request = |method| {
            let said = Said::Request { method, path: "/", upgrade: Upgrade::No };
            decide(&rules, &Ask { target: &target, port: 443, said })
        };
        assert!(matches!(request("GET"), Verdict::Allow(_)));
        assert_eq!(request("POST"), Verdict::Deny(Reason::MethodNotAllowed));
    }

    #[test]
    fn the_name_in_tls_is_the_name_that_was_connected_to() {
        let rules = rules("allow = [{ host = \"a.example.org\" }, { host = \"b.example.org\" }]");
        let (target, a, b) =
            (name("a.example.org"), "a.example.org".parse().unwrap(), "b.example.org".parse().unwrap());
        let hello = |hello| decide(&rules, &Ask { target: &target, port: 443, said: Said::Hello(hello) });
        assert!(matches!(hello(Hello::Name(&a)), Verdict::Allow(_)));
        // Allowed as well, but not what this connection was opened for: fronting.
        assert_eq!(hello(Hello::Name(&b)), Verdict::Deny(Reason::NameMismatch));
        assert_eq!(hello(Hello::NoName), Verdict::Deny(Reason::NameMissing));
        assert_eq!(hello(Hello::Encrypted), Verdict::Deny(Reason::EncryptedName));
    }

    #[test]
    fn requests_are_held_against_methods_paths_and_upgrades() {
        let rules = rules(
            "allow = [{ host = \"a.example.org\", tls = \"inspect\", methods = [\"GET\"], paths = [\"/v1/*\"] }, \
             { host = \"w.example.org\", tls = \"inspect\", protocol = \"ws\" }]",
        );
        let ask = |host: &str, method, path, upgrade| {
            let target = name(host);
            match decide(
                &rules,
                &Ask { target: &target, port: 443, said: Said::Request { method, path, upgrade } },
            ) {
                Verdict::Allow(_) => None,
                Verdict::Deny(reason) => Some(reason),
            }
        };
        assert_eq!(ask("a.example.org", "GET", "/v1/x", Upgrade::No), None);
        assert_eq!(ask("a.example.org", "get", "/v1/x", Upgrade::No), Some(Reason::MethodNotAllowed));
        assert_eq!(ask("a.example.org", "GET", "/v1", Upgrade::No), Some(Reason::PathNotAllowed));
        assert_eq!(ask("a.example.org", "GET", "/v10/x", Upgrade::No), Some(Reason::PathNotAllowed));
        assert_eq!(ask("a.example.org", "GET", "/v1/x", Upgrade::WebSocket), Some(Reason::UpgradeNotAllowed));
        assert_eq!(ask("w.example.org", "GET", "/", Upgrade::WebSocket), None);
        assert_eq!(ask("w.example.org", "GET", "/", Upgrade::Other), Some(Reason::UpgradeNotAllowed));
    }
}
