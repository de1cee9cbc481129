//! Which image of which registry.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use blastbox_wire::event::Hash;

/// An image of a registry: `HOST[:PORT]/REPOSITORY[:TAG][@sha256:…]`, with `http://` or `https://` before it where that matters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    scheme: Option<Scheme>,
    /// `HOST[:PORT]`.
    authority: String,
    repository: String,
    tag: Option<String>,
    digest: Option<Hash>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// The text names no image of a registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{given:?} names no image of a registry: {why}; write HOST[:PORT]/REPOSITORY[:TAG][@sha256:…]")]
pub struct BadReference {
    given: String,
    why: &'static str,
}

impl Reference {
    /// How it is reached where nobody says otherwise: in the open only on this machine itself.
    pub(super) fn scheme(&self) -> Scheme {
        let usual = if is_loopback(self.host()) { Scheme::Http } else { Scheme::Https };
        self.scheme.unwrap_or(usual)
    }

    /// Whether it was written with `http://`.
    pub(super) fn asks_in_the_open(&self) -> bool {
        self.scheme == Some(Scheme::Http)
    }

    /// The registry, without its port.
    pub(super) fn host(&self) -> &str {
        host_of(&self.authority)
    }

    pub(super) fn repository(&self) -> &str {
        &self.repository
    }

    /// What is asked for: the digest where one is given, else the tag, else `latest`.
    pub(super) fn wanted(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(digest), _) => digest.to_string(),
            (None, Some(tag)) => tag.clone(),
            (None, None) => "latest".to_owned(),
        }
    }

    pub(super) fn digest(&self) -> Option<Hash> {
        self.digest
    }

    /// The beginning of every address of this repository.
    pub(super) fn base(&self) -> String {
        let scheme = match self.scheme() {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        format!("{scheme}://{}/v2/{}", self.authority, self.repository)
    }

    /// A name that an image from there may have: the last part of the repository, with the tag.
    #[must_use]
    pub fn usual_name(&self) -> String {
        let last = self.repository.rsplit('/').next().unwrap_or_default();
        match self.tag.as_deref().filter(|tag| *tag != "latest") {
            Some(tag) => format!("{last}:{}", tag.to_ascii_lowercase()),
            None => last.to_owned(),
        }
    }
}

pub(super) fn host_of(authority: &str) -> &str {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !host.ends_with(':') => host,
        _ => authority,
    };
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether a name means this machine itself.
pub(super) fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

impl FromStr for Reference {
    type Err = BadReference;
    fn from_str(text: &str) -> Result<Self, BadReference> {
        let bad = |why| BadReference { given: text.chars().take(200).collect(), why };
        let (scheme, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (Some(Scheme::Http), rest),
            (_, Some(rest)) => (Some(Scheme::Https), rest),
            (None, None) => (None, text),
        };
        // Which registry is meant where none is written is not ours to guess.
        let nameless = "its registry is missing (Docker means its own where none is written)";
        let (authority, rest) = rest.split_once('/').ok_or_else(|| bad(nameless))?;
        let host = host_of(authority);
        // A first word without dot or port is a repository in the language of others.
        if !(authority.contains(['.', ':']) || host == "localhost") {
            return Err(bad(nameless));
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
        if host.is_empty() || !authority.bytes().all(plain) {
            return Err(bad("the registry is no host name"));
        }
        let (rest, digest) = match rest.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest.parse().map_err(|_| bad("the digest is none"))?)),
            None => (rest, None),
        };
        let (repository, tag) = match rest.rsplit_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        let word = |part: &str| {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            part.bytes().all(|byte| plain(byte) || b"._-".contains(&byte))
                && part.bytes().next().is_some_and(plain)
        };
        if repository.len() > 255 || !repository.split('/').all(word) {
            return Err(bad("the repository is not of a-z, 0-9, `.`, `_`, `-` and `/`"));
        }
        let tag_word = |tag: &str| {
            let begins = tag.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            begins
                && tag.len() <= 128
                && tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        if !tag.is_none_or(tag_word) {
            return Err(bad("the tag is none"));
        }
        let (authority, repository, tag) =
            (authority.to_owned(), repository.to_owned(), tag.map(str::to_owned));
        Ok(Self { scheme, authority, repository, tag, digest })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.authority, self.repository)?;
        self.tag.iter().try_for_each(|tag| write!(f, ":{tag}"))?;
        self.digest.iter().try_for_each(|digest| write!(f, "@{digest}"))
    }
}
