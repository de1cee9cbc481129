//! What a box can reach: the flag `--allow`, and `blastbox policy would-allow`.

mod asked;

use std::net::IpAddr;
use std::str::FromStr;

use blastbox_policy::path::{AmbiguousPath, canonical, decoded};
use blastbox_policy::{
    AllowRule, BadRule, Below, Destination, NetworkMode, NetworkRules, PathPattern, Protocol, ResolverUse,
    TlsMode, Ungoverned, is_resolver_port, may_dial,
};

use self::asked::Scheme;
pub(crate) use self::asked::{BadUrl, Method, Url, Wanted};
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
mod tests;
