//! What a registry asks for before it answers: nothing, a name and a password, or a token that somebody else hands out.

use std::fmt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{StatusCode, Uri};
use serde::Deserialize;

use super::RegistryError;
use super::line::{Answer, Lines, parse};
use super::reference::{Reference, Scheme, host_of};
use crate::outbound::{BadTarget, read_secret};

/// Longest answer of who hands out tokens.
const MOST: u64 = 256 * 1024;

/// Who asks.
#[derive(Clone)]
pub struct Login {
    basic: HeaderValue,
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login(…)")
    }
}

impl Login {
    /// A user, and the file that holds the password: command lines are seen by everybody.
    pub fn new(user: &str, password: &Path) -> Result<Self, BadTarget> {
        let secret = read_secret(password)?;
        let pair = [user.as_bytes(), b":", &secret].concat();
        let value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(pair)));
        let mut basic = value.map_err(|_| BadTarget::Token { path: password.to_owned() })?;
        basic.set_sensitive(true);
        Ok(Self { basic })
    }
}

/// What a registry asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String> },
}

/// Reads the header in which it says so. Trust: the registry.
pub(super) fn challenge(headers: &HeaderMap) -> Option<Challenge> {
    let all = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    all.filter_map(|text| {
        let (scheme, rest) = text.split_once(' ').unwrap_or((text, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Challenge::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let field =
            |name: &str| parameters(rest).into_iter().find(|(key, _)| key == name).map(|(_, value)| value);
        Some(Challenge::Bearer { realm: field("realm")?, service: field("service") })
    })
    .next()
}

/// `name="value",…` with what may be in quotes.
fn parameters(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        found.push((name.trim().trim_start_matches(',').trim().to_ascii_lowercase(), value.to_owned()));
        rest = next;
        if found.len() > 16 {
            break;
        }
    }
    found
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

/// What is to be sent with the next question, after a registry has said no.
pub(super) async fn answer(
    lines: &Lines,
    reference: &Reference,
    refused: &Answer,
    login: Option<&Login>,
) -> Result<HeaderValue, RegistryError> {
    let host = refused.host.clone();
    let no = |why: &str| RegistryError::Auth { host: host.clone(), why: why.to_owned() };
    // Whoever we were sent on to is not who the login is for.
    if host_of(&host) != reference.host() {
        return Err(no("it is not the registry that was named"));
    }
    match challenge(refused.response.headers()) {
        None => Err(no("it does not say what it wants")),
        Some(Challenge::Basic) => match login {
            Some(login) => Ok(login.basic.clone()),
            None => Err(no("it wants a user and a password")),
        },
        Some(Challenge::Bearer { realm, service }) => {
            let mut address = format!(
                "{realm}{}scope=repository:{}:pull",
                if realm.contains('?') { '&' } else { '?' },
                reference.repository()
            );
            if let Some(service) = service {
                address.push_str(&format!("&service={}", escaped(&service)));
            }
            // Who is really asked: a text that is cut in another way than the address would name somebody else.
            let asked = no_more_open(reference, parse(&address)?)?;
            let whose = asked.authority().map(ToString::to_string).unwrap_or_default();
            // A registry could name anybody here, and the password would be theirs.
            let basic =
                login.filter(|_| same_house(host_of(&whose), reference.host())).map(|login| &login.basic);
            let mut given = lines.get(&address, "application/json", basic).await?;
            if given.response.status() != StatusCode::OK {
                let more = if login.is_some() && basic.is_none() {
                    "; it belongs to another domain, so the password was kept"
                } else {
                    ""
                };
                return Err(no(&format!("{whose} hands out no token ({}){more}", given.response.status())));
            }
            let body = given.whole("a token", MOST).await?;
            let Token { token, access_token } =
                serde_json::from_slice(&body).map_err(|_| no("what it hands out is no token"))?;
            let token = token.or(access_token).ok_or_else(|| no("what it hands out is no token"))?;
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            let mut value = value.map_err(|_| no("what it hands out is no token"))?;
            value.set_sensitive(true);
            Ok(value)
        }
    }
}

/// A registry that is asked with encryption leads nobody into the open, not even on this machine.
fn no_more_open(reference: &Reference, asked: Uri) -> Result<Uri, RegistryError> {
    if reference.scheme() == Scheme::Https && asked.scheme_str() != Some("https") {
        return Err(RegistryError::Insecure { address: asked.to_string().chars().take(200).collect() });
    }
    Ok(asked)
}

/// Whether two hosts belong to one owner: the same, or names beneath one domain that somebody can register.
fn same_house(one: &str, other: &str) -> bool {
    if one.eq_ignore_ascii_case(other) {
        return !one.is_empty();
    }
    if is_address(one) || is_address(other) {
        return false;
    }
    let domain = |host: &str| psl::domain_str(host).map(str::to_ascii_lowercase);
    domain(one).is_some() && domain(one) == domain(other)
}

/// Whether a resolver could take it for an address: no name ends with a number, and no name has a colon. The owner of
/// 192.0.2.1 is not that of 198.51.2.1.
fn is_address(host: &str) -> bool {
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    host.contains(':') || last.starts_with(|first: char| first.is_ascii_digit())
}

fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &'static str) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(text));
        challenge(&headers)
    }

    #[test]
    fn a_challenge_is_read_however_it_is_written() {
        let (realm, service) = ("https://a.example/token".to_owned(), Some("r.example".to_owned()));
        let wanted = Some(Challenge::Bearer { realm, service });
        assert_eq!(
            read(r#"Bearer realm="https://a.example/token",service="r.example",scope="x:y,z""#),
            wanted
        );
        assert_eq!(read(r#"bearer service=r.example, realm="https://a.example/token""#), wanted);
        assert_eq!(read(r#"Basic realm="x""#), Some(Challenge::Basic));
        for bad in ["Bearer", "Bearer realm", "Digest realm=\"x\"", ""] {
            assert_eq!(read(bad), None, "{bad}");
        }
    }

    #[test]
    fn encryption_is_not_left_for_a_token() {
        let leads = |registry: &str, realm: &str| {
            no_more_open(&registry.parse().unwrap(), parse(realm).unwrap()).is_ok()
        };
        assert!(leads("r.example/a", "https://auth.r.example/t"));
        assert!(leads("http://r.example/a", "http://r.example/t"));
        assert!(leads("localhost:5000/a", "http://localhost:5001/t"));
        assert!(!leads("r.example/a", "http://auth.r.example/t"));
        assert!(!leads("r.example/a", "http://127.0.0.1/t"));
    }

    #[test]
    fn a_password_stays_in_its_house() {
        assert!(same_house("auth.example.com", "registry.example.com"));
        assert!(same_house("Auth.Example.com", "registry.example.com"));
        assert!(same_house("127.0.0.1", "127.0.0.1"));
        assert!(same_house("::1", "::1"));
        for (one, other) in [
            ("evil.test", "registry.example.com"),
            ("a.co.uk", "b.co.uk"),
            ("", "x.org"),
            ("", ""),
            ("198.51.2.1", "192.0.2.1"),
            ("198.51.2.1.", "192.0.2.1."),
            ("1.0x2", "3.0x2"),
            ("2001:db8::1", "2001:db8::2"),
        ] {
            assert!(!same_house(one, other), "{one} {other}");
        }
    }
}
