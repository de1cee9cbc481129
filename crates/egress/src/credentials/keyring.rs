//! The secrets of this box and the only code that puts one into a request.
//!
//! Trust: an attacker chose every header; hyper has parsed them. A request gets a secret only if it came over a connection that was ended here
//! ([`Inspected`]), for exactly the bound host and port, with a bound method and canonical path.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blastbox_policy::{Binding, Given, Host, SecretName, Slot};
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::scrub::{BadPatterns, Patterns};
use super::{Placeholder, Secret};

/// One binding with what it stands for.
struct Held {
    binding: Binding,
    secret: Secret,
    placeholder: Option<Placeholder>,
    /// When it can no longer be used.
    ends: Mutex<Option<Instant>>,
}

/// A binding, its secret, and for how long that can be used, where it does not last as long as the box.
pub type Handed = (Binding, Secret, Option<Duration>);

/// Why a secret cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum BadKeyring {
    /// No randomness.
    #[error("cannot make a placeholder")]
    Random(#[source] std::io::Error),
    /// No patterns.
    #[error(transparent)]
    Patterns(#[from] BadPatterns),
}

/// Proof that requests are read: made by the code that has ended a TLS connection for this name, and by the one that takes requests for
/// it from the engine, which were never in TLS and go on by it (`door/call.rs`). By nothing else.
#[derive(Debug, Clone)]
pub struct Inspected {
    host: Host,
    port: u16,
}

impl Inspected {
    pub(crate) fn new(host: Host, port: u16) -> Self {
        Self { host, port }
    }
    /// The name that the client asked for and that was certified to it.
    pub fn host(&self) -> &Host {
        &self.host
    }
    /// The port that it connected to.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// All secrets of one box.
#[derive(Default)]
pub struct Keyring {
    held: Vec<Held>,
    patterns: Option<Arc<Patterns>>,
}

impl std::fmt::Debug for Keyring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.held.iter().map(|held| held.binding.secret().as_str())).finish()
    }
}

/// A placeholder where none belongs. Says which, never where it should have gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// The secret that it stands for.
    pub secret: SecretName,
    /// `header` or `query`.
    pub found_in: &'static str,
}

/// The request as far as a binding cares.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'r> {
    /// The method, as sent.
    pub method: &'r str,
    /// The canonical path. `None`: it has none, so no binding with paths covers it.
    pub path: Option<&'r str>,
    /// Path and query as sent.
    pub target: &'r str,
}

impl Keyring {
    /// Takes the secrets of a box.
    pub fn new(secrets: Vec<Handed>) -> Result<Self, BadKeyring> {
        let mut held = Vec::with_capacity(secrets.len());
        for (binding, secret, life) in secrets {
            let placeholder = match binding.given() {
                Given::Nothing => None,
                Given::Placeholder { prefix, .. } => {
                    Some(Placeholder::fresh(prefix).map_err(BadKeyring::Random)?)
                }
            };
            let ends = Mutex::new(life.map(|life| Instant::now() + life));
            held.push(Held { binding, secret, placeholder, ends });
        }
        let patterns = match held.is_empty() {
            true => None,
            false => Some(Arc::new(Patterns::of(held.iter().map(|held| &held.secret))?)),
        };
        Ok(Self { held, patterns })
    }

    /// Variables of the box and the stand-ins that they hold.
    pub fn variables(&self) -> Vec<(String, String)> {
        let variable = |held: &Held| match (held.binding.given(), &held.placeholder) {
            (Given::Placeholder { env: Some(name), .. }, Some(stand_in)) => {
                Some((name.to_string(), stand_in.as_str().to_owned()))
            }
            _ => None,
        };
        self.held.iter().filter_map(variable).collect()
    }

    /// The secret of a binding can be used for this long from now.
    pub fn renewed(&self, place: usize, life: Duration) {
        if let Some(held) = self.held.get(place) {
            *held.ends.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + life);
        }
    }

    /// What answers of this host are scrubbed of, by whatever port and way they come that is read at all; `None` if no secret ever goes there.
    pub fn scrub(&self, host: &Host) -> Option<Arc<Patterns>> {
        let concerned = self.held.iter().any(|held| held.binding.host() == host);
        self.patterns.clone().filter(|_| concerned)
    }

    /// Looks for stand-ins in a request for which they were not made. Also for hosts without any secret.
    pub fn stray(&self, host: &Host, port: u16, wanted: Wanted<'_>, headers: &HeaderMap) -> Option<Stray> {
        for held in &self.held {
            let Some(stand_in) = &held.placeholder else { continue };
            let stray = |found_in| Some(Stray { secret: held.binding.secret().clone(), found_in });
            if in_target(stand_in, wanted.target) {
                return stray("query");
            }
            let covered = covers(&held.binding, host, port, wanted);
            for (name, value) in headers {
                let home = covered && name.as_str() == held.binding.slot().header();
                if !home && (stand_in.is_in(value.as_bytes()) || stand_in.is_in(name.as_str().as_bytes())) {
                    return stray("header");
                }
            }
        }
        None
    }

    /// Puts in the secrets that belong to a request, and gives their names. What the guest wrote in the slot is gone.
    pub fn lend(
        &self,
        on: &Inspected,
        wanted: Wanted<'_>,
        headers: &mut HeaderMap,
    ) -> Result<Vec<SecretName>, NotLent> {
        let mut lent = Vec::new();
        for held in self.held.iter().filter(|held| covers(&held.binding, &on.host, on.port, wanted)) {
            let name = HeaderName::from_bytes(held.binding.slot().header().as_bytes())
                .map_err(|_| NotLent::Unwritable)?;
            let value = match &held.placeholder {
                None => Some(whole(held.binding.slot(), &held.secret)),
                Some(stand_in) => {
                    let mut values = headers.get_all(&name).iter();
                    // The first that holds it; another value beside it would be a second identity.
                    values.find_map(|value| {
                        stand_in.replaced(value.as_bytes(), held.secret.expose_to_upstream())
                    })
                }
            };
            let Some(value) = value else { continue };
            if held.is_over() {
                return Err(NotLent::Expired(held.binding.secret().clone()));
            }
            headers.insert(name, written(value)?);
            lent.push(held.binding.secret().clone());
        }
        Ok(lent)
    }
}

/// Why a secret is not lent; the request is not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotLent {
    /// It does not fit into a header.
    #[error("cannot write the secret into the request")]
    Unwritable,
    /// Its lease is over.
    #[error(
        "the lease of secret {0} is over, because its source did not renew it: a new box gets a new one, and whoever runs this one is told why"
    )]
    Expired(SecretName),
}

impl Held {
    fn is_over(&self) -> bool {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|end| Instant::now() >= end)
    }
}

fn covers(binding: &Binding, host: &Host, port: u16, wanted: Wanted<'_>) -> bool {
    match wanted.path {
        Some(path) => binding.covers(host, port, wanted.method, path),
        // Without a path that has one meaning only a binding for all paths can be meant.
        None => binding.paths().is_empty() && binding.covers(host, port, wanted.method, "/"),
    }
}

/// As it stands in the target, or percent-encoded by half.
fn in_target(stand_in: &Placeholder, target: &str) -> bool {
    let mut decoded = Vec::with_capacity(target.len());
    let mut rest = target.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let triplet = after.split_first_chunk::<2>().filter(|_| byte == b'%').and_then(|(pair, after)| {
            let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
            Some((digit(pair[0])? << 4 | digit(pair[1])?, after))
        });
        let (byte, after) = triplet.unwrap_or((byte, after));
        decoded.push(byte);
        rest = after;
    }
    stand_in.is_in(target.as_bytes()) || stand_in.is_in(&decoded)
}

fn whole(slot: &Slot, secret: &Secret) -> Zeroizing<Vec<u8>> {
    let secret = secret.expose_to_upstream();
    match slot {
        Slot::Bearer => Zeroizing::new([b"Bearer ", secret].concat()),
        Slot::Basic { user } => {
            let login = Zeroizing::new([user.as_bytes(), b":", secret].concat());
            let login = Zeroizing::new(STANDARD.encode(&*login));
            Zeroizing::new([b"Basic ", login.as_bytes()].concat())
        }
        Slot::Header(_) => Zeroizing::new(secret.to_vec()),
    }
}

/// A header around this very memory, copies of the request included: wiped when the last of them is dropped.
fn written(value: Zeroizing<Vec<u8>>) -> Result<HeaderValue, NotLent> {
    let shared = HeaderValue::from_maybe_shared(Bytes::from_owner(value));
    let mut value = shared.map_err(|_| NotLent::Unwritable)?;
    // Never into the tables of HTTP/2, which outlive the request.
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
#[path = "keyring_tests.rs"]
mod tests;
