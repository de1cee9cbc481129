//! One binding: which secret, in which requests, in which header.

use std::{fmt, str::FromStr};

use super::BadBinding;
use crate::words::clip;
use crate::{Host, PathPattern};

/// What a secret is called. The name is in logs, the ledger and receipts; the value nowhere.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Box<str>);

impl SecretName {
    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for SecretName {
    type Err = BadBinding;
    fn from_str(text: &str) -> Result<Self, BadBinding> {
        let clean = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b));
        match text.len() {
            1..=64 if clean => Ok(Self(text.into())),
            _ => Err(BadBinding::Name { text: clip(text) }),
        }
    }
}

/// Where in a request the secret stands.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Slot {
    /// `Authorization: Bearer …`
    Bearer,
    /// `Authorization: Basic …`, the secret being the password.
    Basic {
        /// The login.
        user: Box<str>,
    },
    /// The whole value of this header, in small letters.
    Header(Box<str>),
}

impl Slot {
    /// The header that carries it.
    #[must_use]
    pub fn header(&self) -> &str {
        match self {
            Self::Bearer | Self::Basic { .. } => "authorization",
            Self::Header(name) => name,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Bearer => "bearer",
            Self::Basic { .. } => "basic",
            Self::Header(_) => "header",
        }
    }
}

/// What the box has of the secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Given {
    /// Nothing: the gateway puts the secret into each request of the binding.
    Nothing,
    /// A random stand-in that begins like the real one; the gateway replaces it in the bound header.
    Placeholder {
        /// How it begins, for programs that look at it.
        prefix: Box<str>,
        /// The variable of the box that it stands in.
        env: Option<Box<str>>,
    },
}

/// One binding. Made only by [`Binding::new`], so one that exists is consistent in itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    secret: SecretName,
    host: Host,
    port: u16,
    methods: Vec<String>,
    paths: Vec<PathPattern>,
    slot: Slot,
    given: Given,
}

/// The parts of a binding as they were written.
#[derive(Debug, Clone, Default)]
pub struct BindingParts {
    /// The port; none means 443.
    pub port: Option<u16>,
    /// The methods; none means every method that a rule allows.
    pub methods: Vec<String>,
    /// The paths; none means every path that a rule allows.
    pub paths: Vec<PathPattern>,
    /// `bearer`, `basic` or `header`; none means `bearer`.
    pub slot: Option<String>,
    /// The login, for `basic`.
    pub user: Option<String>,
    /// The header, for `header`.
    pub header: Option<String>,
    /// How the stand-in begins, if there is one.
    pub placeholder: Option<String>,
    /// The variable for the stand-in.
    pub env: Option<String>,
}

/// Headers that say how a message is carried, or for whom it is.
const CARRIERS: &[&str] = &[
    "host",
    "connection",
    "content-length",
    "content-encoding",
    "content-type",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "range",
    "accept-encoding",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
];

impl Binding {
    /// Checks that the parts fit together.
    pub fn new(secret: SecretName, host: Host, parts: BindingParts) -> Result<Self, BadBinding> {
        let BindingParts { port, mut methods, paths, slot, user, header, placeholder, env } = parts;
        let port = port.unwrap_or(443);
        if port == 0 {
            return Err(BadBinding::Port);
        }
        let token = |m: &String| {
            !m.is_empty() && m.len() <= 32 && m.bytes().all(|b| b.is_ascii_uppercase() || b == b'-')
        };
        if let Some(odd) = methods.iter().find(|method| !token(method)) {
            return Err(BadBinding::Method { text: clip(odd) });
        }
        methods.sort_unstable();
        methods.dedup();
        let slot = read_slot(slot.as_deref().unwrap_or("bearer"), user, header)?;
        let given = read_given(placeholder, env)?;
        Ok(Self { secret, host, port, methods, paths, slot, given })
    }

    /// The secret.
    #[must_use]
    pub fn secret(&self) -> &SecretName {
        &self.secret
    }
    /// The one host that it goes to.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }
    /// The one port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
    /// The methods; none means every one.
    #[must_use]
    pub fn methods(&self) -> &[String] {
        &self.methods
    }
    /// The paths; none means every one.
    #[must_use]
    pub fn paths(&self) -> &[PathPattern] {
        &self.paths
    }
    /// Where in the request.
    #[must_use]
    pub fn slot(&self) -> &Slot {
        &self.slot
    }
    /// What the box has of it.
    #[must_use]
    pub fn given(&self) -> &Given {
        &self.given
    }

    /// Whether a request is of this binding. The path is the canonical one.
    #[must_use]
    pub fn covers(&self, host: &Host, port: u16, method: &str, path: &str) -> bool {
        self.host == *host
            && self.port == port
            && (self.methods.is_empty() || self.methods.iter().any(|known| known == method))
            && (self.paths.is_empty() || self.paths.iter().any(|pattern| pattern.covers(path)))
    }

    /// Whether some request could be of both, and nobody could say which of them its header gets.
    pub(super) fn ambiguous_with(&self, other: &Self) -> bool {
        let apart = self.host != other.host
            || self.port != other.port
            || (!self.methods.is_empty()
                && !other.methods.is_empty()
                && !self.methods.iter().any(|method| other.methods.contains(method)))
            || (!self.paths.is_empty()
                && !other.paths.is_empty()
                && !self.paths.iter().any(|one| other.paths.iter().any(|two| overlap(one, two))));
        match (&self.given, &other.given) {
            _ if apart => false,
            // Stand-ins are told apart by what they are.
            (Given::Placeholder { .. }, Given::Placeholder { .. }) => false,
            (Given::Nothing, _) | (_, Given::Nothing) => self.slot.header() == other.slot.header(),
        }
    }
}

fn overlap(one: &PathPattern, two: &PathPattern) -> bool {
    let folder = |pattern: &PathPattern| pattern.as_str().strip_suffix('*').map(str::to_owned);
    match (folder(one), folder(two)) {
        (Some(a), Some(b)) => a.starts_with(&b) || b.starts_with(&a),
        (Some(_), None) => one.covers(two.as_str()),
        (None, Some(_)) => two.covers(one.as_str()),
        (None, None) => one == two,
    }
}

fn read_slot(word: &str, user: Option<String>, header: Option<String>) -> Result<Slot, BadBinding> {
    let bad = |slot, problem| Err(BadBinding::Slot { slot, problem });
    match (word, user, header) {
        ("bearer", None, None) => Ok(Slot::Bearer),
        ("bearer", ..) => bad("bearer", "has neither user nor header"),
        ("basic", Some(user), None) => {
            let clean =
                user.bytes().all(|b| matches!(b, 0x21..=0x7e) && b != b':' && b != b'"' && b != b'\\');
            match user.len() {
                1..=128 if clean => Ok(Slot::Basic { user: user.into() }),
                _ => Err(BadBinding::User { text: clip(&user) }),
            }
        }
        ("basic", ..) => bad("basic", "needs user, and has no header"),
        ("header", None, Some(header)) => {
            let header = header.to_ascii_lowercase();
            let clean =
                header.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b));
            match header.len() {
                1..=64 if clean && !CARRIERS.contains(&header.as_str()) => Ok(Slot::Header(header.into())),
                _ => Err(BadBinding::Header { text: clip(&header) }),
            }
        }
        ("header", ..) => bad("header", "needs header, and has no user"),
        _ => bad("…", "takes one of bearer, basic, header"),
    }
}

fn read_given(prefix: Option<String>, env: Option<String>) -> Result<Given, BadBinding> {
    let Some(prefix) = prefix else {
        return if env.is_some() { Err(BadBinding::EnvWithoutPlaceholder) } else { Ok(Given::Nothing) };
    };
    let clean = prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if prefix.len() > 32 || !clean {
        return Err(BadBinding::Prefix { text: clip(&prefix) });
    }
    if let Some(name) = &env {
        let clean = name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_');
        let begins = name.bytes().next().is_some_and(|b| b.is_ascii_uppercase());
        let taken = ["LD_", "BLASTBOX_"].iter().any(|taken| name.starts_with(taken))
            || ["PATH", "HOME", "SHELL", "USER", "IFS", "ENV"].contains(&name.as_str());
        if !clean || !begins || taken || name.len() > 64 {
            return Err(BadBinding::Variable { text: clip(name) });
        }
    }
    Ok(Given::Placeholder { prefix: prefix.into(), env: env.map(Into::into) })
}
