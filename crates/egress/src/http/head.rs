//! The head of a request: for whom it is, what it asks for, and what of it goes on.
//!
//! Trust: an attacker chose it; hyper has parsed it, behind the guard of [`super::framing`].

use blastbox_policy::Host;
use blastbox_policy::path::{canonical, decoded};
use http::header::{self, HeaderMap, HeaderName};
use http::request::Parts;
use http::{Method, Uri};

use crate::decide::Upgrade;

/// The connection as the request must describe it.
#[derive(Debug, Clone)]
pub(super) struct Addressed {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) scheme: &'static str,
}

/// What is wrong with a head, whatever the rules say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadHead {
    #[error("the request is for another host than the connection: {0}")]
    Authority(&'static str),
    #[error("the method {0} is never carried")]
    Method(&'static str),
    #[error("the target is neither a path that begins with a slash, nor a whole address, nor * of OPTIONS")]
    Target,
}

/// What a request asks for.
#[derive(Debug)]
pub(super) struct Wish {
    /// The canonical path; `None`: it has none, and no rule about paths can hold for it.
    pub(super) path: Option<String>,
    /// What goes upstream: the canonical path where there is one, and the query.
    pub(super) target: String,
    pub(super) upgrade: Upgrade,
}

/// Reads a head. Nothing of it is changed.
pub(super) fn read(parts: &Parts, to: &Addressed) -> Result<Wish, BadHead> {
    match parts.method {
        Method::CONNECT => return Err(BadHead::Method("CONNECT")),
        // It sends the request's own headers back, and with them a secret.
        Method::TRACE => return Err(BadHead::Method("TRACE")),
        _ => {}
    }
    authority(&parts.uri, &parts.headers, to)?;
    form(&parts.method, &parts.uri)?;
    let path = canonical(parts.uri.path()).ok();
    let shown = path.as_deref().unwrap_or_else(|| parts.uri.path());
    let target = match parts.uri.query() {
        Some(query) => format!("{shown}?{query}"),
        None => shown.to_owned(),
    };
    Ok(Wish { path, target, upgrade: upgrade(&parts.headers) })
}

/// What is neither a path nor a whole address would have to be made one, and then another request was judged than asked.
fn form(method: &Method, uri: &Uri) -> Result<(), BadHead> {
    let lone_authority = uri.scheme().is_none() && uri.authority().is_some();
    let path = uri.path().starts_with('/') || (uri.path() == "*" && *method == Method::OPTIONS);
    if path && !lone_authority { Ok(()) } else { Err(BadHead::Target) }
}

/// Every place that names a host must name the connection's, and one must.
fn authority(uri: &Uri, headers: &HeaderMap, to: &Addressed) -> Result<(), BadHead> {
    let hosts = headers.get_all(header::HOST);
    if hosts.iter().count() > 1 {
        return Err(BadHead::Authority("several Host headers"));
    }
    if uri.scheme_str().is_some_and(|scheme| !scheme.eq_ignore_ascii_case(to.scheme)) {
        return Err(BadHead::Authority("another scheme"));
    }
    let from_uri = uri.authority().map(|authority| authority.as_str().as_bytes());
    let from_header = hosts.iter().next().map(|host| host.as_bytes());
    if from_uri.is_none() && from_header.is_none() {
        return Err(BadHead::Authority("none is named"));
    }
    for named in [from_uri, from_header].into_iter().flatten() {
        if !is(named, to) {
            return Err(BadHead::Authority("Host, :authority and the connection differ"));
        }
    }
    Ok(())
}

/// `name`, or `name:port`; anything else (a login, an address, a stray byte) is not it.
fn is(named: &[u8], to: &Addressed) -> bool {
    let mut parts = named.splitn(2, |byte| *byte == b':');
    let name = parts.next().and_then(|name| Host::from_bytes(name).ok());
    let port = match parts.next() {
        None => Some(if to.scheme == "https" { 443 } else { 80 }),
        Some(digits) if (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit) => {
            std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u16>().ok())
        }
        Some(_) => None,
    };
    name.as_ref() == Some(&to.host) && port == Some(to.port)
}

fn upgrade(headers: &HeaderMap) -> Upgrade {
    let mut wanted = headers.get_all(header::UPGRADE).iter().map(|value| value.as_bytes().trim_ascii());
    match (wanted.next(), wanted.next()) {
        (None, _) => Upgrade::No,
        (Some(word), None) if word.eq_ignore_ascii_case(b"websocket") => Upgrade::WebSocket,
        // Some clients always ask for it and go on without: a server need not agree, and ours never hears of it.
        (Some(word), None) if word.eq_ignore_ascii_case(b"h2c") => Upgrade::No,
        (Some(_), _) => Upgrade::Other,
    }
}

/// Headers that belong to one connection, that claim to come from a proxy, or that change the method behind our back.
const NEVER_CARRIED: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "proxy-authenticate",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
    "expect",
    "forwarded",
    "via",
    "x-real-ip",
    "x-original-url",
    "x-rewrite-url",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "content-length",
    "host",
];

/// Takes away what must not go upstream.
pub(super) fn strip(headers: &mut HeaderMap) {
    named_by_connection(headers);
    let trailers = headers.get(header::TE).is_some_and(|te| te.as_bytes().eq_ignore_ascii_case(b"trailers"));
    for name in NEVER_CARRIED {
        headers.remove(*name);
    }
    let forwarded: Vec<HeaderName> =
        headers.keys().filter(|name| name.as_str().starts_with("x-forwarded-")).cloned().collect();
    for name in forwarded {
        headers.remove(name);
    }
    if trailers {
        // gRPC asks for it, and it is the one value that HTTP/2 knows.
        headers.insert(header::TE, http::HeaderValue::from_static("trailers"));
    }
}

/// Takes away what `Connection` names: it is meant for us alone.
pub(super) fn named_by_connection(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
}

/// Whether a resolver is asked over HTTPS, as far as a request shows it: by its media types, or by the path that such resolvers have. What a box
/// asks in names goes to its gateway and nobody else, also where a rule leads to a host that would answer.
pub(super) fn asks_resolver(headers: &HeaderMap, path: Option<&str>, as_sent: &str) -> bool {
    const TYPES: [&str; 3] =
        ["application/dns-message", "application/dns-json", "application/oblivious-dns-message"];
    // Bytes, not text: a header that is no text goes upstream as any other.
    let of_dns = |part: &[u8]| {
        let kind = part.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        TYPES.iter().any(|known| kind.eq_ignore_ascii_case(known.as_bytes()))
    };
    let named = [header::ACCEPT, header::CONTENT_TYPE].iter().any(|name| {
        let values = headers.get_all(name).iter();
        values.flat_map(|value| value.as_bytes().split(|byte| *byte == b',')).any(of_dns)
    });
    named
        || match path {
            Some(path) => path == "/dns-query",
            // It can be read in two ways, and one of them is a resolver's.
            None => decoded(as_sent)
                .split(|byte| b"/\\".contains(byte))
                .any(|name| name.eq_ignore_ascii_case(b"dns-query")),
        }
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
