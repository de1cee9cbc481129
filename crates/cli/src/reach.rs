//! What a box can reach: the flag `--allow`, and `blastbox policy would-allow`.

use std::net::IpAddr;
use std::str::FromStr;

use blastbox_policy::path::{AmbiguousPath, canonical, decoded};
use blastbox_policy::{
    AllowRule, BadRule, Below, Destination, Host, NetworkMode, NetworkRules, PathPattern, Protocol,
    ResolverUse, TlsMode, Ungoverned, is_resolver_port, may_dial,
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
    scheme: Scheme,
    to: Destination,
    port: u16,
    path: String,
}

/// How it would go there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    Https,
    Http,
    Wss,
    /// A WebSocket in the clear, which no protocol of rules stands for.
    Ws,
    Tcp,
}

impl Scheme {
    const fn usual_port(self) -> Option<u16> {
        match self {
            Self::Https | Self::Wss => Some(443),
            Self::Http | Self::Ws => Some(80),
            Self::Tcp => None,
        }
    }

    /// What the smallest rule for it speaks.
    const fn protocol(self) -> Protocol {
        match self {
            Self::Https => Protocol::Https,
            Self::Http => Protocol::Http,
            Self::Wss => Protocol::Ws,
            Self::Ws | Self::Tcp => Protocol::Tcp,
        }
    }
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
        let scheme = match scheme {
            "https" => Scheme::Https,
            "http" => Scheme::Http,
            "wss" => Scheme::Wss,
            "ws" => Scheme::Ws,
            "tcp" => Scheme::Tcp,
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
            None => scheme.usual_port(),
        };
        let to = match (host.parse::<IpAddr>(), host.parse::<Host>()) {
            (Ok(address), _) => Destination::Address(address),
            (Err(_), Ok(name)) => Destination::Name(name),
            (Err(_), Err(_)) => {
                return Err(bad("its host is neither a name nor an address in its usual form"));
            }
        };
        let path = path.split(['?', '#']).next().filter(|path| !path.is_empty()).unwrap_or("/");
        Ok(Self { scheme, to, port: port.ok_or_else(|| bad("raw TCP needs a port"))?, path: path.to_owned() })
    }
}

/// What a box is denied ends the verb that asks with.
const NO: u8 = 1;

/// The method of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Method(String);

impl FromStr for Method {
    type Err = BadRule;
    /// As rules take them.
    fn from_str(text: &str) -> Result<Self, BadRule> {
        let capitals = !text.is_empty()
            && text.len() <= 32
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
        capitals
            .then(|| Self(text.to_owned()))
            .ok_or_else(|| BadRule::Method { text: text.chars().take(40).collect() })
    }
}

/// What would be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    url: Url,
    /// GET, where none is named.
    method: Option<Method>,
}

impl Wanted {
    pub(crate) fn new(url: Url, method: Option<Method>) -> Self {
        Self { url, method }
    }

    /// What opens a WebSocket is a GET.
    fn method(&self) -> &str {
        match (&self.method, self.url.scheme) {
            (Some(Method(method)), Scheme::Https | Scheme::Http) => method,
            (None, _) | (Some(_), Scheme::Wss | Scheme::Ws | Scheme::Tcp) => "GET",
        }
    }
}

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
pub(crate) fn would_allow(rules: &NetworkRules, wanted: &Wanted) -> Answer {
    let Url { scheme, to, port, path } = &wanted.url;
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
    let form = canonical(path);
    let missing = smallest(rules, wanted);
    let governing = match rules.governing(to, *port) {
        Ok(governing) => governing,
        Err(why) => return Answer::Denied(ungoverned(rules, &wanted.url, why, &missing)),
    };
    for rule in &governing {
        if speaks(rule, *scheme)
            && covers_path(rule, form.as_deref().ok())
            && covers_method(rule, wanted.method())
        {
            // As the gateway does, where it sees it.
            if is_read(rule) && rule.resolver() == ResolverUse::Refused && asks_resolver(&form, path) {
                return Answer::Denied(
                    "requests there are read, and DNS over HTTPS is refused: a box asks its own resolver"
                        .to_owned(),
                );
            }
            return Answer::Allowed(describe(rule, rules));
        }
    }
    Answer::Denied(unspoken(rules, wanted, &governing, &form))
}

/// No rule decides about it: what is missing.
fn ungoverned(rules: &NetworkRules, url: &Url, why: Ungoverned, missing: &str) -> String {
    let Url { scheme, to, port, path: _ } = url;
    if *scheme == Scheme::Ws && matches!(to, Destination::Name(_)) {
        return in_the_clear(to);
    }
    match why {
        Ungoverned::Host if rules.mode == NetworkMode::Off => {
            format!("network.mode is \"off\"; write mode = \"allow\" and the rule\n  {missing}")
        }
        Ungoverned::Host => format!("no rule names {to}; this one would\n  {missing}"),
        Ungoverned::Resolver => format!(
            "{to} is a public resolver (DNS over HTTPS), which no wildcard opens: a box asks its gateway; this rule would, \
             with all that questions carry out\n  {missing}"
        ),
        Ungoverned::Port => format!("rules name {to}, but not port {port}; this one would\n  {missing}"),
    }
}

/// Rules decide about it, and none of them lets it pass: what to write beside them, or what to change. A rule of its own for a name that a
/// wildcard covers would take that name, with all its other requests, from the wildcard.
fn unspoken(
    rules: &NetworkRules,
    wanted: &Wanted,
    governing: &[&AllowRule],
    form: &Result<String, AmbiguousPath>,
) -> String {
    let Url { scheme, to, port: _, path: _ } = &wanted.url;
    if *scheme == Scheme::Ws {
        return in_the_clear(to);
    }
    let named: Vec<String> = governing.iter().map(|rule| format!("\"{}\"", rule.host())).collect();
    let named = named.join(", ");
    let reads = |rule: &&&AllowRule| *scheme == Scheme::Wss && rule.is_inspected() && in_tls(rule);
    let speaking = || governing.iter().filter(|rule| speaks(rule, *scheme));
    // The one that lacks least.
    let by_path = speaking().find(|rule| covers_path(rule, form.as_deref().ok()));
    let what = match (by_path, speaking().next()) {
        (Some(_), _) => format!("the method {}", wanted.method()),
        (None, Some(_)) => "this path".to_owned(),
        (None, None) => "this protocol".to_owned(),
    };
    let by_path = by_path.or_else(|| speaking().next());
    match (by_path.or_else(|| governing.iter().find(reads)), form) {
        (Some(rule), Ok(form)) => {
            let rule = beside(rule, wanted, form);
            format!("the rule for {named} does not allow {what}; this one beside it would\n  {rule}")
        }
        (Some(rule), Err(_)) if speaks(rule, *scheme) && covers_path(rule, None) => {
            let rule = beside(rule, wanted, "/");
            format!("the rule for {named} does not allow {what}; this one beside it would\n  {rule}")
        }
        (Some(_), Err(why)) => format!(
            "the rule for {named} does not allow {what}: {why}, so that it can be read in two ways; only a rule without paths lets such a \
             one pass"
        ),
        (None, _) => {
            let first = governing.first().map(|rule| (place(rule, rules), rule.protocol()));
            let (number, protocol) = first.unwrap_or_default();
            format!(
                "the rule for {named} does not allow {what}: rule {number} of network.allow has protocol = \"{protocol}\", and rules for the \
                 same host and port must agree; change that one, or ask on another port"
            )
        }
    }
}

fn in_the_clear(to: &Destination) -> String {
    format!(
        "a WebSocket in the clear (ws://) is carried by no rule but one of raw TCP; ask for wss://{to}, with a rule that has \
         protocol = \"ws\" and tls = \"inspect\""
    )
}

/// Whether what the URL stands for passes a connection of this rule. What is carried unread may be anything in TLS.
fn speaks(rule: &AllowRule, scheme: Scheme) -> bool {
    match (rule.protocol(), scheme) {
        (Protocol::Tcp, _)
        | (Protocol::Ws, Scheme::Https | Scheme::Wss)
        | (Protocol::Https, Scheme::Https)
        | (Protocol::Http, Scheme::Http) => true,
        (Protocol::Https, Scheme::Wss) => rule.tls() == TlsMode::Passthrough,
        (Protocol::Ws | Protocol::Https | Protocol::Http, _) => false,
    }
}

fn in_tls(rule: &AllowRule) -> bool {
    matches!(rule.protocol(), Protocol::Https | Protocol::Ws)
}

fn is_read(rule: &AllowRule) -> bool {
    rule.protocol() == Protocol::Http || rule.tls() == TlsMode::Inspect
}

/// A path without one meaning (`None`) is covered by no pattern.
fn covers_path(rule: &AllowRule, form: Option<&str>) -> bool {
    rule.paths().is_empty()
        || form.is_some_and(|form| rule.paths().iter().any(|pattern| pattern.covers(form)))
}

/// Where nobody reads requests, no rule has methods.
fn covers_method(rule: &AllowRule, method: &str) -> bool {
    rule.methods().is_empty() || rule.methods().iter().any(|known| known == method)
}

/// The path that resolvers have; of one that can be read in two ways, in either.
fn asks_resolver(form: &Result<String, AmbiguousPath>, path: &str) -> bool {
    match form {
        Ok(form) => form == "/dns-query",
        Err(_) => decoded(path)
            .split(|byte| b"/\\".contains(byte))
            .any(|name| name.eq_ignore_ascii_case(b"dns-query")),
    }
}

/// Its number, as people count.
fn place(rule: &AllowRule, rules: &NetworkRules) -> usize {
    rules.allow.iter().position(|known| known == rule).map_or(0, |place| place + 1)
}

fn describe(rule: &AllowRule, rules: &NetworkRules) -> String {
    let number = place(rule, rules);
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

/// The smallest rule for it alone. Where other ports of the name are read, or only some of its paths or methods allowed, so it is here.
fn smallest(rules: &NetworkRules, wanted: &Wanted) -> String {
    let Url { scheme, to, port, path } = &wanted.url;
    let name = match to {
        Destination::Name(name) => Some(name),
        Destination::Address(_) => None,
    };
    // An address has no name that TLS or HTTP could be held against.
    let protocol = name.map_or(Protocol::Tcp, |_| scheme.protocol());
    let covers = |rule: &&AllowRule| name.is_some_and(|name| rule.host().covers(name));
    let known = || rules.allow.iter().filter(covers);
    let read = known().any(|rule| in_tls(rule) && rule.tls() == TlsMode::Inspect);
    let tls = match protocol {
        Protocol::Ws => ", tls = \"inspect\"",
        Protocol::Https if read => ", tls = \"inspect\"",
        Protocol::Https | Protocol::Http | Protocol::Tcp => "",
    };
    // Only where it is read can a rule say it.
    let reads = protocol == Protocol::Http || !tls.is_empty();
    let named = known().any(|rule| !rule.methods().is_empty()) || wanted.method.is_some();
    let methods = match protocol {
        Protocol::Https | Protocol::Http if reads && named => {
            format!(", methods = [\"{}\"]", wanted.method())
        }
        Protocol::Https | Protocol::Http | Protocol::Ws | Protocol::Tcp => String::new(),
    };
    let paths = match canonical(path) {
        Ok(form) if protocol != Protocol::Tcp && known().any(|rule| !rule.paths().is_empty()) => {
            format!(", paths = [\"{}\"]", pattern(&form))
        }
        Ok(_) | Err(_) => String::new(),
    };
    let resolver = match name {
        Some(name) if name.is_public_resolver() => ", resolver = \"dangerously-allowed\"",
        Some(_) | None => "",
    };
    format!(
        "{{ host = \"{to}\", ports = [{port}], protocol = \"{protocol}\"{tls}{methods}{paths}{resolver} }}"
    )
}

/// A rule for this path, that can stand beside one which reads requests to the same hosts: it reads them, too.
fn beside(rule: &AllowRule, wanted: &Wanted, form: &str) -> String {
    let (scheme, port) = (wanted.url.scheme, wanted.url.port);
    let protocol = scheme.protocol();
    let tls = if in_tls(rule) { ", tls = \"inspect\"" } else { "" };
    // As they are written in TOML. What opens a WebSocket is a GET, whatever else may be asked there.
    let methods = match rule.methods() {
        _ if scheme == Scheme::Wss => String::new(),
        [] if wanted.method.is_none() => String::new(),
        _ => format!(", methods = [\"{}\"]", wanted.method()),
    };
    // Of a rule for all paths only the method is missing.
    let paths = match rule.paths() {
        [] if speaks(rule, scheme) => String::new(),
        _ => format!(", paths = [\"{}\"]", pattern(form)),
    };
    let resolver = match rule.resolver() {
        ResolverUse::Refused => "",
        ResolverUse::DangerouslyAllowed => ", resolver = \"dangerously-allowed\"",
    };
    let host = rule.host();
    format!(
        "{{ host = \"{host}\", ports = [{port}], protocol = \"{protocol}\"{tls}{methods}{paths}{resolver} }}"
    )
}

/// The smallest pattern that covers a path: itself, or a folder that it is in where a pattern cannot say it.
fn pattern(form: &str) -> String {
    let can_be_said = |text: &str| text.parse::<PathPattern>().is_ok_and(|pattern| pattern.covers(form));
    if can_be_said(form) {
        return form.to_owned();
    }
    let folders = form.match_indices('/').rev().filter_map(|(at, _)| form.get(..=at));
    folders.map(|folder| format!("{folder}*")).find(|text| can_be_said(text)).unwrap_or("/*".to_owned())
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
        would_allow(&rules, &get(url))
    }

    fn get(url: &str) -> Wanted {
        Wanted::new(url.parse().unwrap(), None)
    }

    fn by(method: &str, url: &str) -> Wanted {
        Wanted::new(url.parse().unwrap(), Some(method.parse().unwrap()))
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

    /// The rule that a refusal ends with, written beside those that there were, seals; with it the same is asked again.
    fn with_what_is_said(rules: &str, wanted: &Wanted) -> (String, NetworkRules) {
        let url = &wanted.url;
        let seal = |rules: &str| {
            let text = format!("threat = \"medium\"\n[network]\nmode = \"allow\"\nallow = [{rules}]");
            parse(&text).unwrap().seal().unwrap().network().clone()
        };
        let Answer::Denied(text) = would_allow(&seal(rules), wanted) else {
            panic!("{url:?} was allowed by {rules}")
        };
        let said = text.lines().last().unwrap().trim().to_owned();
        let both = seal(&format!("{rules}, {said}"));
        let again = would_allow(&both, wanted);
        assert!(matches!(again, Answer::Allowed(_)), "{url:?} with {said}: {again:?}");
        (said, both)
    }

    #[test]
    fn what_is_missing_can_be_written_beside_what_is_there() {
        const READ: &str =
            "{ host = \"*.example.com\", tls = \"inspect\", methods = [\"GET\"], paths = [\"/v1/*\"] }";
        for (rules, url, rule) in [
            (
                READ,
                "https://a.example.com/v2/%78?y=1",
                "{ host = \"*.example.com\", ports = [443], protocol = \"https\", tls = \"inspect\", methods = [\"GET\"], paths = [\"/v2/x\"] }",
            ),
            (
                READ,
                "wss://a.example.com/v1/live",
                "{ host = \"*.example.com\", ports = [443], protocol = \"ws\", tls = \"inspect\", paths = [\"/v1/live\"] }",
            ),
            (
                READ,
                "https://a.example.com:8443/v2/x",
                "{ host = \"a.example.com\", ports = [8443], protocol = \"https\", tls = \"inspect\", methods = [\"GET\"], paths = [\"/v2/x\"] }",
            ),
            (
                "{ host = \"a.test\", protocol = \"http\", paths = [\"/\"] }",
                "http://a.test/docs/a%20b/",
                "{ host = \"a.test\", ports = [80], protocol = \"http\", paths = [\"/docs/*\"] }",
            ),
            (
                "{ host = \"a.test\", tls = \"inspect\", paths = [\"/v1\"] }",
                "https://a.test/v1/",
                "{ host = \"a.test\", ports = [443], protocol = \"https\", tls = \"inspect\", paths = [\"/v1/*\"] }",
            ),
            (
                "{ host = \"*.quad9.net\", tls = \"inspect\" }",
                "https://dns.quad9.net/x",
                "{ host = \"dns.quad9.net\", ports = [443], protocol = \"https\", tls = \"inspect\", resolver = \"dangerously-allowed\" }",
            ),
            (
                "{ host = \"b.test\" }",
                "wss://a.test/live",
                "{ host = \"a.test\", ports = [443], protocol = \"ws\", tls = \"inspect\" }",
            ),
        ] {
            assert_eq!(with_what_is_said(rules, &get(url)).0, rule, "{url}");
        }
        // What was read before is read still, of other names and of this one.
        let (_, both) = with_what_is_said(READ, &get("https://a.example.com/v2/x"));
        for url in ["https://a.example.com/v1/x", "https://b.example.com/v1/x"] {
            let answer = would_allow(&both, &get(url));
            assert!(matches!(&answer, Answer::Allowed(how) if how.contains("is read")), "{url}: {answer:?}");
        }
        let other = would_allow(&both, &get("https://a.example.com/v3"));
        assert!(matches!(other, Answer::Denied(_)), "{other:?}");
    }

    #[test]
    fn the_method_is_judged_too_and_stands_in_the_rule_that_is_missing() {
        const READ: &str =
            "{ host = \"a.test\", tls = \"inspect\", methods = [\"GET\", \"HEAD\"], paths = [\"/v1/*\"] }";
        let rule = |rest: &str| {
            format!("{{ host = \"a.test\", ports = [443], protocol = \"https\", tls = \"inspect\", {rest} }}")
        };
        for (rules, wanted, missing) in [
            (READ, by("POST", "https://a.test/v1/x"), "methods = [\"POST\"], paths = [\"/v1/x\"]"),
            (READ, by("POST", "https://a.test/v2/x"), "methods = [\"POST\"], paths = [\"/v2/x\"]"),
            (READ, by("HEAD", "https://a.test/v2/x"), "methods = [\"HEAD\"], paths = [\"/v2/x\"]"),
            (
                "{ host = \"a.test\", tls = \"inspect\", methods = [\"POST\"] }",
                get("https://a.test/v1//x"),
                "methods = [\"GET\"]",
            ),
        ] {
            assert_eq!(with_what_is_said(rules, &wanted).0, rule(missing), "{wanted:?}");
        }
        let rules = parse(&format!("[network]\nmode = \"allow\"\nallow = [{READ}]")).unwrap();
        let says = |wanted: &Wanted| would_allow(rules.network_rules(), wanted);
        assert!(matches!(says(&get("https://a.test/v1/x")), Answer::Allowed(_)));
        let denied = says(&by("POST", "https://a.test/v1/x"));
        assert!(matches!(&denied, Answer::Denied(text) if text.contains("the method POST")), "{denied:?}");
        // Nobody sees it, so that nothing depends on it; and no rule for it can name it.
        let rules = "mode = \"allow\"\nallow = [{ host = \"b.test\" }]";
        let rules = parse(&format!("[network]\n{rules}")).unwrap().network_rules().clone();
        assert!(matches!(would_allow(&rules, &by("POST", "https://b.test/")), Answer::Allowed(_)));
        let Answer::Denied(text) = would_allow(&rules, &by("POST", "https://c.test/")) else { panic!() };
        assert!(text.ends_with("{ host = \"c.test\", ports = [443], protocol = \"https\" }"), "{text}");
        let Answer::Denied(text) = would_allow(&rules, &by("POST", "http://c.test/")) else { panic!() };
        assert!(text.ends_with("protocol = \"http\", methods = [\"POST\"] }"), "{text}");
        for odd in ["post", "", "GET ", "P\u{d6}ST"] {
            assert!(odd.parse::<Method>().is_err(), "{odd}");
        }
    }

    #[test]
    fn what_no_rule_beside_another_can_say_names_the_one_to_change() {
        let rules =
            "mode = \"allow\"\nallow = [{ host = \"b.test\" }, { host = \"a.test\", tls = \"inspect\" }]";
        for url in ["http://a.test:443/", "tcp://a.test:443"] {
            let Answer::Denied(text) = ask(rules, url) else { panic!("{url} was allowed") };
            assert!(text.contains("rule 2 of network.allow has protocol = \"https\""), "{url}: {text}");
            assert!(!text.contains("host = "), "{url}: {text}");
        }
    }

    #[test]
    fn the_form_of_a_path_is_judged_as_the_gateway_does() {
        let rules = "mode = \"allow\"\nallow = [{ host = \"a.test\", tls = \"inspect\", paths = [\"/v1/*\"] }, \
                     { host = \"b.test\", tls = \"inspect\" }]";
        assert!(matches!(ask(rules, "https://a.test/%76%31/x"), Answer::Allowed(_)));
        for path in ["/v1/../admin", "/v1/%2e%2e/admin", "/v1//x", "/v1/a%2Fb", "/v1/%252e"] {
            let answer = ask(rules, &format!("https://a.test{path}"));
            assert!(
                matches!(&answer, Answer::Denied(text) if text.contains("in two ways")),
                "{path}: {answer:?}"
            );
            let answer = ask(rules, &format!("https://b.test{path}"));
            assert!(matches!(answer, Answer::Allowed(_)), "{path} where all paths are: {answer:?}");
        }
        for path in ["/%64ns-query", "/x/../DNS-query"] {
            let answer = ask(rules, &format!("https://b.test{path}"));
            assert!(
                matches!(&answer, Answer::Denied(text) if text.contains("DNS over HTTPS")),
                "{path}: {answer:?}"
            );
        }
    }

    #[test]
    fn a_websocket_in_the_clear_is_carried_by_raw_tcp_alone() {
        let rules = "mode = \"allow\"\nallow = [{ host = \"a.test\", protocol = \"ws\", tls = \"inspect\", ports = [80, 443] }, \
                     { host = \"b.test\", protocol = \"http\" }, { host = \"c.test\", protocol = \"tcp\", ports = [80] }]";
        for url in ["ws://a.test/", "ws://a.test:443/", "ws://b.test/", "ws://d.test/"] {
            let answer = ask(rules, url);
            assert!(matches!(&answer, Answer::Denied(text) if text.contains("wss://")), "{url}: {answer:?}");
        }
        assert!(matches!(ask(rules, "wss://a.test/"), Answer::Allowed(_)));
        assert!(matches!(ask(rules, "ws://c.test/"), Answer::Allowed(_)));
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
