//! Who asks: whoever sits at the socket, or whoever has a key.

use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use blastbox_engine::keeper::Tenant;

use crate::keys::{KeyMark, Keys};
use crate::{Hall, Trouble};

const X_API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const ROOT: u32 = 0;

/// The other end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A process of this host, at the unix socket.
    Socket {
        /// Its user.
        uid: u32,
    },
    /// Anybody, over TCP.
    Tcp,
}

/// Whoever a request comes from, once it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) tenant: Tenant,
    pub(crate) reach: Reach,
    /// The key that came along. None: it sits at the socket.
    pub(crate) key: Option<KeyMark>,
}

/// What a caller may name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Directories of this host too: the caller has them anyway.
    Host,
    /// Boxes, and what the operator named for everybody.
    Boxes,
}

/// Why a caller is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    NoKey,
    WrongKey,
    WrongUser,
    /// The file of keys cannot be read.
    Broken,
    /// A web page asks, and nobody has named it.
    Origin,
    /// The tenant has as many connections as it may.
    Crowded,
}

impl From<Denied> for Trouble {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::NoKey => Self::NoKey,
            Denied::WrongKey => Self::WrongKey,
            Denied::WrongUser => Self::WrongUser,
            Denied::Broken => Self::Defect,
            Denied::Origin => Self::WrongOrigin,
            Denied::Crowded => Self::Crowded,
        }
    }
}

/// Decides who asks. A key counts wherever it comes from; the socket counts for its own user and for root.
pub(crate) fn admit(peer: Peer, headers: &HeaderMap, hall: &Hall) -> Result<Caller, Denied> {
    decide(peer, hall.own_uid, headers, &hall.origins, &hall.keys)
}

fn decide(
    peer: Peer,
    own_uid: u32,
    headers: &HeaderMap,
    origins: &[String],
    keys: &Keys,
) -> Result<Caller, Denied> {
    // First of all: whoever may not be at this socket gains nothing by what else is wrong with the request. A page's
    // requests go on to the ports of sandboxes.
    if let Peer::Socket { uid } = peer
        && uid != own_uid
        && uid != ROOT
    {
        return Err(Denied::WrongUser);
    }
    // A browser says on whose behalf it asks. No page that somebody happens to look at may speak with a daemon of this
    // host, whatever name it has given to our address; the operator names those that may.
    if headers.get_all(ORIGIN).iter().any(|origin| !origins.iter().any(|known| origin == known)) {
        return Err(Denied::Origin);
    }
    match (key(headers)?, peer) {
        (Some(key), _) => match keys.find(key) {
            Ok(Some((tenant, mark))) => Ok(Caller { tenant, reach: Reach::Boxes, key: Some(mark) }),
            Ok(None) => Err(Denied::WrongKey),
            Err(_) => Err(Denied::Broken),
        },
        (None, Peer::Socket { .. }) => Ok(Caller { tenant: Tenant::local(), reach: Reach::Host, key: None }),
        (None, Peer::Tcp) => Err(Denied::NoKey),
    }
}

/// The key that came along. Two that differ are no key: whoever checks the other one would be fooled.
fn key(headers: &HeaderMap) -> Result<Option<&str>, Denied> {
    let mut found = None;
    let bearer = headers.get_all(AUTHORIZATION).iter().map(|value| {
        let text = value.to_str().ok()?;
        let (scheme, key) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let plain = headers.get_all(X_API_KEY).iter().map(|value| value.to_str().ok());
    for key in bearer.chain(plain) {
        let key = key.ok_or(Denied::WrongKey)?;
        if found.is_some_and(|other| other != key) {
            return Err(Denied::WrongKey);
        }
        found = Some(key);
    }
    Ok(found)
}

impl FromRequestParts<Hall> for Caller {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, _: &Hall) -> Result<Self, Trouble> {
        match parts.extensions.get::<Result<Self, Denied>>() {
            Some(Ok(caller)) => Ok(caller.clone()),
            Some(Err(denied)) => Err((*denied).into()),
            // No door asked: nobody is let in.
            None => Err(Trouble::NoKey),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;
    use crate::testing::Scratch;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn the_socket_is_for_its_user_and_root_and_tcp_for_keys() {
        let scratch = Scratch::new("admit");
        let keys = Keys::in_directory(scratch.path());
        let admit = |peer, pairs: &[_]| {
            decide(peer, 1000, &headers(pairs), &["https://known.test".to_owned()], &keys)
                .map(|caller| caller.tenant.to_string())
        };
        assert_eq!(admit(Peer::Socket { uid: 1000 }, &[]), Ok("local".into()));
        assert_eq!(admit(Peer::Socket { uid: 0 }, &[]), Ok("local".into()));
        assert_eq!(admit(Peer::Socket { uid: 1001 }, &[]), Err(Denied::WrongUser));
        assert_eq!(admit(Peer::Tcp, &[]), Err(Denied::NoKey));
        let key = keys.create("team".parse().unwrap(), None).unwrap();
        let (key, bearer) = (key.show_once(), format!("Bearer {}", key.show_once()));
        assert_eq!(admit(Peer::Tcp, &[("authorization", &bearer)]), Ok("team".into()));
        assert_eq!(admit(Peer::Tcp, &[("x-api-key", key)]), Ok("team".into()));
        assert_eq!(admit(Peer::Tcp, &[("x-api-key", key), ("authorization", &bearer)]), Ok("team".into()));
        assert_eq!(admit(Peer::Socket { uid: 1000 }, &[("x-api-key", key)]), Ok("team".into()));
        // A key does not open somebody else's socket, and a wrong one does not fall back to the socket's user.
        assert_eq!(admit(Peer::Socket { uid: 1001 }, &[("x-api-key", key)]), Err(Denied::WrongUser));
        assert_eq!(admit(Peer::Socket { uid: 1000 }, &[("x-api-key", "bbx_x")]), Err(Denied::WrongKey));
        // Nor does a page, known or not; over its own user's socket only a known one asks.
        for (page, own) in
            [("https://known.test", Ok("local".into())), ("https://other.test", Err(Denied::Origin))]
        {
            assert_eq!(admit(Peer::Socket { uid: 1001 }, &[("origin", page)]), Err(Denied::WrongUser));
            assert_eq!(admit(Peer::Socket { uid: 1000 }, &[("origin", page)]), own);
        }
    }

    #[test]
    fn a_key_in_another_form_is_none() {
        let scratch = Scratch::new("forms");
        let keys = Keys::in_directory(scratch.path());
        let key = keys.create("team".parse().unwrap(), None).unwrap();
        for pairs in [
            vec![("authorization", format!("Basic {}", key.show_once()))],
            vec![("authorization", key.show_once().to_owned())],
            vec![("x-api-key", key.show_once().to_owned()), ("x-api-key", "bbx_other".to_owned())],
            vec![("x-api-key", String::new())],
        ] {
            let pairs: Vec<_> = pairs.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!(
                decide(Peer::Tcp, 0, &headers(&pairs), &[], &keys),
                Err(Denied::WrongKey),
                "{pairs:?}"
            );
        }
    }
}
