//! What a box can reach: the flag `--allow`, and `blastbox policy would-allow`.

use std::net::IpAddr;
use std::str::FromStr;

use blastbox_policy::{
    AllowRule, BadRule, Below, Destination, Host, NetworkMode, NetworkRules, Protocol, ResolverUse, TlsMode,
    Ungoverned, is_resolver_port, may_dial,
};

use crate::output;
use crate::problem::Problem;

/// A host that the box may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AllowFlag(pub(crate) AllowRule);

impl FromStr for AllowFlag {
    type Err = BadRule;
    fn from_str(text: &str) -> Result<Self, BadRule> {
        AllowRule::short(text).map(Self)
    }
}

/// Somewhere that a box might want to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url {
    protocol: Protocol,
    to: Destination,
    port: u16,
    path: String,
}

/// What is no URL that a gateway could judge.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no URL that can be judged: {why}; write https://HOST[:PORT]/PATH, http://…, wss://… or tcp://HOST:PORT"
)]
pub(crate) struct BadUrl {
    text: String,
    why: &'static str,
}

impl FromStr for Url {
    type Err = BadUrl;
    fn from_str(text: &str) -> Result<Self, BadUrl> {
        let bad = |why| BadUrl { text: text.chars().take(80).collect(), why };
        let (scheme, rest) = text.split_once("://").ok_or_else(|| bad("it has no scheme"))?;
        let protocol = match scheme {
            "https" => Protocol::Https,
            "http" => Protocol::Http,
            "wss" | "ws" => Protocol::Ws,
            "tcp" => Protocol::Tcp,
            _ => return Err(bad("its scheme is another")),
        };
        let (authority, path) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        if authority.contains('@') {
            return Err(bad("it has a user in it, which changes what the host is"));
        }
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => {
                (host, Some(port.strip_prefix(':').ok_or_else(|| bad("its port is none"))?))
            }
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let port = match port {
            Some(port) => Some(
                port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| bad("its port is none"))?,
            ),
            None => protocol.usual_port(),
        };
        let to = match (host.parse::<IpAddr>(), host.parse::<Host>()) {
            (Ok(address), _) => Destination::Address(address),
            (Err(_), Ok(name)) => Destination::Name(name),
            (Err(_), Err(_)) => {
                return Err(bad("its host is neither a name nor an address in its usual form"));
            }
        };
        let path = path.split(['?', '#']).next().filter(|path| !path.is_empty()).unwrap_or("/");
        Ok(Self {
            protocol,
            to,
            port: port.ok_or_else(|| bad("raw TCP needs a port"))?,
            path: path.to_owned(),
        })
    }
}

/// What a box is denied ends the verb that asks with.
const NO: u8 = 1;

/// Whether a box would be let through, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It would, as far as rules can tell.
    Allowed(String),
    /// It would not.
    Denied(String),
}

impl Answer {
    /// Prints it. The exit code of the verb.
    pub(crate) fn tell(&self, json: bool) -> Result<u8, Problem> {
        let (allowed, word, why, code) = match self {
            Self::Allowed(how) => (true, "allowed", how, 0),
            Self::Denied(why) => (false, "denied", why, NO),
        };
        match json {
            true => output::print_json(&serde_json::json!({ "allowed": allowed, "why": why }))?,
            // Lines of its own are wanted here, and nothing else of a terminal's.
            false => {
                let lines: Vec<String> = why.lines().map(output::plain).collect();
                output::print(&format!("{word}: {}\n", lines.join("\n")))?;
            }
        }
        Ok(code)
    }
}

/// Holds a URL against the rules, as the gateway would.
pub(crate) fn would_allow(rules: &NetworkRules, url: &Url) -> Answer {
    let Url { protocol, to, port, path } = url;
    if let Destination::Address(address) = to
        && let Err(class) = may_dial(*address, *port, &rules.dangerously_allow_private)
    {
        return Answer::Denied(below(*address, *port, class));
    }
    if is_resolver_port(*port) {
        return Answer::Denied(format!(
            "port {port} is one of resolvers, which no rule opens: a box asks its gateway for names"
        ));
    }
    let missing = smallest(url);
    let governing = match rules.governing(to, *port) {
        Ok(governing) => governing,
        Err(Ungoverned::Host) if rules.mode == NetworkMode::Off => {
            return Answer::Denied(format!(
                "network.mode is \"off\"; write mode = \"allow\" and the rule\n  {missing}"
            ));
        }
        Err(Ungoverned::Host) => {
            return Answer::Denied(format!("no rule names {to}; this one would\n  {missing}"));
        }
        Err(Ungoverned::Resolver) => {
            return Answer::Denied(format!(
                "{to} is a public resolver (DNS over HTTPS), which no wildcard opens: a box asks its gateway; this rule would, \
                 with all that questions carry out\n  {missing}"
            ));
        }
        Err(Ungoverned::Port) => {
            return Answer::Denied(format!(
                "rules name {to}, but not port {port}; this one would\n  {missing}"
            ));
        }
    };
    for rule in &governing {
        if speaks(rule, *protocol) && covers_path(rule, path) {
            // As the gateway does, where it sees it.
            if path == "/dns-query" && is_read(rule) && rule.resolver() == ResolverUse::Refused {
                return Answer::Denied(
                    "requests there are read, and DNS over HTTPS is refused: a box asks its own resolver"
                        .to_owned(),
                );
            }
            return Answer::Allowed(describe(rule, rules));
        }
    }
    let rules: Vec<String> = governing.iter().map(|rule| format!("\"{}\"", rule.host())).collect();
    let what =
        if governing.iter().any(|rule| speaks(rule, *protocol)) { "this path" } else { "this protocol" };
    Answer::Denied(format!(
        "the rule for {} does not allow {what}; this one would\n  {missing}",
        rules.join(", ")
    ))
}

/// Whether what the URL stands for passes a connection of this rule. What is carried unread may be anything in TLS.
fn speaks(rule: &AllowRule, protocol: Protocol) -> bool {
    match (rule.protocol(), protocol) {
        (Protocol::Tcp, _) | (Protocol::Ws, Protocol::Https | Protocol::Ws) => true,
        (Protocol::Https, Protocol::Ws) => rule.tls() == TlsMode::Passthrough,
        (one, other) => one == other,
    }
}

fn is_read(rule: &AllowRule) -> bool {
    rule.protocol() == Protocol::Http || rule.tls() == TlsMode::Inspect
}

fn covers_path(rule: &AllowRule, path: &str) -> bool {
    rule.paths().is_empty() || rule.paths().iter().any(|pattern| pattern.covers(path))
}

fn describe(rule: &AllowRule, rules: &NetworkRules) -> String {
    let number = rules.allow.iter().position(|known| known == rule).map_or(0, |place| place + 1);
    let how = match rule.protocol() {
        Protocol::Tcp => "carried unread".to_owned(),
        Protocol::Http => "every request is read".to_owned(),
        Protocol::Https | Protocol::Ws => match rule.tls() {
            TlsMode::Passthrough => "decided by the name in TLS, carried unread".to_owned(),
            TlsMode::Inspect => "every request is read".to_owned(),
        },
    };
    let methods = if rule.methods().is_empty() {
        String::new()
    } else {
        format!("; methods {}", rule.methods().join(", "))
    };
    format!(
        "rule {number} of network.allow (\"{}\"): {how}{methods}; where the name leads is checked when it is dialled",
        rule.host()
    )
}

fn smallest(url: &Url) -> String {
    let Url { protocol, to, port, path: _ } = url;
    // An address has no name that TLS or HTTP could be held against.
    let protocol = match (to, protocol) {
        (Destination::Address(_), _) => Protocol::Tcp,
        (Destination::Name(_), protocol) => *protocol,
    };
    let tls = if protocol == Protocol::Ws { ", tls = \"inspect\"" } else { "" };
    let resolver = match to {
        Destination::Name(name) if name.is_public_resolver() => ", resolver = \"dangerously-allowed\"",
        Destination::Name(_) | Destination::Address(_) => "",
    };
    format!("{{ host = \"{to}\", ports = [{port}], protocol = \"{protocol}\"{tls}{resolver} }}")
}

fn below(address: IpAddr, port: u16, class: Below) -> String {
    if !class.can_be_opened() {
        return format!("{address} is a {class} address, which no rule opens");
    }
    let bits = if address.is_ipv4() { 32 } else { 128 };
    format!(
        "{address} is a {class} address; it needs a rule and\n  dangerously_allow_private = \
         [{{ cidr = \"{address}/{bits}\", ports = [{port}] }}]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use blastbox_policy::parse;

    fn ask(network: &str, url: &str) -> Answer {
        let rules = parse(&format!("[network]\n{network}")).unwrap().network_rules().clone();
        would_allow(&rules, &url.parse().unwrap())
    }

    const RULES: &str = "mode = \"allow\"\nallow = [{ host = \"api.github.com\" }, { host = \"*.example.com\", ports = [443, 8443] }]";

    #[test]
    fn a_url_is_answered_with_its_rule_or_the_smallest_that_is_missing() {
        assert!(
            matches!(ask(RULES, "https://api.github.com/user?x=1"), Answer::Allowed(text) if text.starts_with("rule 1 "))
        );
        assert!(
            matches!(ask(RULES, "https://a.b.example.com:8443/"), Answer::Allowed(text) if text.contains("*.example.com"))
        );
        for (url, needle) in [
            ("https://example.com/", "{ host = \"example.com\", ports = [443], protocol = \"https\" }"),
            ("https://api.github.com.evil.test/", "no rule names api.github.com.evil.test"),
            ("https://api.github.com:8443/", "not port 8443"),
            ("http://a.example.com:443/", "does not allow this protocol"),
            ("tcp://93.184.216.34:5432", "{ host = \"93.184.216.34\", ports = [5432], protocol = \"tcp\" }"),
            (
                "tcp://10.0.0.1:5432",
                "dangerously_allow_private = [{ cidr = \"10.0.0.1/32\", ports = [5432] }]",
            ),
            ("http://169.254.169.254/", "which no rule opens"),
        ] {
            let Answer::Denied(text) = ask(RULES, url) else { panic!("{url} was allowed") };
            assert!(text.contains(needle), "{url}: {text}");
        }
        assert!(
            matches!(ask("", "https://a.test/"), Answer::Denied(text) if text.contains("network.mode is \"off\""))
        );
    }

    #[test]
    fn a_resolver_over_https_is_denied_where_the_gateway_sees_it() {
        let rules =
            "mode = \"allow\"\nallow = [{ host = \"a.test\", tls = \"inspect\" }, { host = \"b.test\" }]";
        let says =
            |url: &str| matches!(ask(rules, url), Answer::Denied(text) if text.contains("DNS over HTTPS"));
        assert!(says("https://a.test/dns-query?dns=AAAB"));
        assert!(matches!(ask(rules, "https://a.test/dns"), Answer::Allowed(_)));
        assert!(matches!(ask(rules, "https://b.test/dns-query"), Answer::Allowed(_)), "nobody reads it");
    }

    #[test]
    fn a_public_resolver_is_explained_and_its_smallest_rule_has_the_word() {
        let wild = "mode = \"allow\"\nallow = [{ host = \"*.quad9.net\" }]";
        let word = "{ host = \"dns.quad9.net\", ports = [443], protocol = \"https\", resolver = \"dangerously-allowed\" }";
        let Answer::Denied(text) = ask(wild, "https://dns.quad9.net/dns-query") else { panic!("allowed") };
        assert!(text.contains("which no wildcard opens") && text.ends_with(word), "{text}");
        assert!(matches!(ask(wild, "https://www.quad9.net/"), Answer::Allowed(_)));
        let Answer::Denied(text) = ask(RULES, "https://dns.quad9.net/") else { panic!("allowed") };
        assert!(text.contains("no rule names dns.quad9.net") && text.ends_with(word), "{text}");
        for rule in
            [word, "{ host = \"dns.quad9.net\", tls = \"inspect\", resolver = \"dangerously-allowed\" }"]
        {
            let rules = format!("mode = \"allow\"\nallow = [{rule}]");
            assert!(matches!(ask(&rules, "https://dns.quad9.net/dns-query"), Answer::Allowed(_)), "{rule}");
        }
    }

    #[test]
    fn tricks_are_no_urls() {
        for url in [
            "api.github.com",
            "https://api.github.com@evil.test/",
            "https://0x7f.1/",
            "https://2130706433/",
            "https://a%00b.test/",
            "ftp://a.test/",
            "tcp://a.test",
            "https://a.test:0/",
        ] {
            assert!(url.parse::<Url>().is_err(), "{url}");
        }
    }

    #[test]
    fn the_flag_is_https_or_raw_tcp() {
        let rule = |text: &str| {
            text.parse::<AllowFlag>()
                .map(|flag| format!("{} {:?} {}", flag.0.host(), flag.0.ports(), flag.0.protocol()))
        };
        assert_eq!(rule("api.github.com").unwrap(), "api.github.com [443] https");
        assert_eq!(rule("*.example.com:443").unwrap(), "*.example.com [443] https");
        assert_eq!(rule("db.example.com:5432").unwrap(), "db.example.com [5432] tcp");
        assert_eq!(rule("[2606:4700::1]:5432").unwrap(), "2606:4700::1 [5432] tcp");
        for bad in ["*", "*.com", "a.test:0", "a.test:53", "10.0.0.0/8", "a.test:99999"] {
            assert!(rule(bad).is_err(), "{bad}");
        }
    }
}
