//! Which requests are for this face: by headers, by host, by signature, by path, in that order.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{HeaderMap, Method};
use blastbox_engine::keeper::Tenant;

use super::form;
use super::no::No;
use crate::caller::{Caller, Denied};
use crate::door::Seat;

const SANDBOX_ID: &str = "e2b-sandbox-id";
const SANDBOX_PORT: &str = "e2b-sandbox-port";

const OF_A_PAGE: &str = "a web page asks, and the operator has not named it";
const CROWDED: &str = "too many connections of this tenant at once";

/// First words of the paths of the control plane.
const CONTROL: &[&str] = &[
    "sandboxes",
    "templates",
    "default-templates",
    "snapshots",
    "volumes",
    "secrets",
    "volumecontent",
    "health",
];
/// First words of the paths inside a sandbox, where nothing says which. `metrics` is the daemon's own then.
const INSIDE: &[&str] =
    &["files", "envs", "init", "process.Process", "filesystem.Filesystem", "execute", "contexts"];

/// Where a request belongs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The control plane.
    Control,
    /// A port of a sandbox.
    Sandbox { id: String, port: u16 },
    /// A file of the sandbox whose token made the signature.
    Signed,
    /// For this face, and not complete.
    Nowhere(&'static str),
    /// Not for this face.
    Elsewhere,
}

/// Decides it.
pub(super) fn place<B>(request: &axum::http::Request<B>) -> Place {
    let headers = request.headers();
    if headers.contains_key(SANDBOX_ID) || headers.contains_key(SANDBOX_PORT) {
        return by_headers(headers).unwrap_or(Place::Nowhere(
            "the headers E2b-Sandbox-Id and E2b-Sandbox-Port name a sandbox together: its id, and a port",
        ));
    }
    let host = request.uri().host().or_else(|| headers.get(HOST).and_then(|host| host.to_str().ok()));
    if let Some(place) = host.and_then(by_host) {
        return place;
    }
    let path = request.uri().path();
    let mut words = path.trim_start_matches('/').split('/');
    let first = words.next().unwrap_or_default();
    if path == "/files" && form::pairs(request.uri().query()).iter().any(|(name, _)| name == "signature") {
        return Place::Signed;
    }
    let later = matches!(first, "v2" | "v3") && matches!(words.next(), Some("sandboxes" | "templates"));
    if CONTROL.contains(&first) || later {
        return Place::Control;
    }
    if INSIDE.contains(&first) {
        return Place::Nowhere(
            "this path is inside a sandbox, and nothing says which: send E2b-Sandbox-Id and E2b-Sandbox-Port",
        );
    }
    Place::Elsewhere
}

fn by_headers(headers: &HeaderMap) -> Option<Place> {
    let one = |name: &str| {
        let mut all = headers.get_all(name).iter();
        let value = all.next()?.to_str().ok()?;
        // Two that differ would mean another sandbox to whoever looks at the other one.
        all.all(|other| other.as_bytes() == value.as_bytes()).then_some(value)
    };
    let (id, port) = (one(SANDBOX_ID)?, one(SANDBOX_PORT)?);
    Some(Place::Sandbox { id: id.to_owned(), port: port.parse().ok()? })
}

/// `PORT-ID.anything`.
fn by_host(host: &str) -> Option<Place> {
    let (label, _) = host.split_once('.')?;
    let (port, id) = label.split_once('-')?;
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let plain = !id.is_empty() && id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if !digits || !plain {
        return None;
    }
    // A port that no machine has is still meant for a sandbox: nothing listens there.
    Some(Place::Sandbox { id: id.to_owned(), port: port.parse().unwrap_or(0) })
}

/// Whether the door lets this caller near a sandbox at all. Over TCP the token of the sandbox decides, and E2B's clients
/// send headers there that are no keys of ours; the socket of another user stays closed.
pub(super) fn let_through(request: &Request) -> Result<(), No> {
    match request.extensions().get::<Result<Caller, Denied>>() {
        Some(Err(Denied::WrongUser)) => Err(No::new(403, "this socket belongs to another user")),
        Some(Err(Denied::Origin)) => Err(No::new(403, OF_A_PAGE)),
        Some(Err(Denied::Crowded)) => Err(No::new(429, CROWDED)),
        Some(Ok(_) | Err(Denied::NoKey | Denied::WrongKey | Denied::Broken)) => Ok(()),
        // No door asked: nobody is let in.
        None => Err(No::unauthorized()),
    }
}

/// The same for a port of a sandbox. A page may ask there: it is what the server inside says that decides, as with any
/// server that pages are served from, and what is asked there never reaches the daemon's own API.
pub(super) fn let_through_to_a_port(request: &Request) -> Result<(), No> {
    match request.extensions().get::<Result<Caller, Denied>>() {
        Some(Err(Denied::Origin)) => Ok(()),
        _ => let_through(request),
    }
}

/// Gives the connection to the tenant whose sandbox it has shown to have a right to, so that it counts among that
/// tenant's: the door has seen no key here.
pub(super) fn sit_down(request: &Request, tenant: &Tenant) -> Result<(), No> {
    match request.extensions().get::<Arc<Seat>>() {
        Some(seat) if !seat.take_for(tenant) => Err(No::new(429, CROWDED)),
        // Without a seat there is no door, and nothing to count: a test.
        Some(_) | None => Ok(()),
    }
}

/// The same for somebody who has shown nothing but the name of a sandbox.
pub(super) fn sit_down_as_stranger(request: &Request, tenant: &Tenant) -> Result<(), No> {
    match request.extensions().get::<Arc<Seat>>() {
        Some(seat) if !seat.take_for_stranger(tenant) => Err(No::new(429, CROWDED)),
        Some(_) | None => Ok(()),
    }
}

/// Whose sandboxes a caller of the control plane sees.
pub(super) fn caller(request: &Request) -> Result<Caller, No> {
    match request.extensions().get::<Result<Caller, Denied>>() {
        Some(Ok(caller)) => Ok(caller.clone()),
        Some(Err(Denied::WrongUser)) => Err(No::new(403, "this socket belongs to another user")),
        Some(Err(Denied::Origin)) => Err(No::new(403, OF_A_PAGE)),
        Some(Err(Denied::Crowded)) => Err(No::new(429, CROWDED)),
        Some(Err(Denied::Broken)) => Err(No::defect()),
        Some(Err(Denied::NoKey)) => Err(No::new(
            401,
            "the request has no API key: send one that `blastbox key create` made as X-API-KEY",
        )),
        Some(Err(Denied::WrongKey)) => Err(No::new(401, "the API key is not valid")),
        None => Err(No::unauthorized()),
    }
}

/// The method and the decoded parts of the path.
pub(super) fn parts(request: &Request) -> (Method, Vec<String>) {
    let path = request.uri().path().trim_start_matches('/');
    (request.method().clone(), path.split('/').map(form::percent_decoded).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str, headers: &[(&str, &str)]) -> Place {
        let mut request = axum::http::Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        place(&request.body(()).unwrap())
    }

    fn sandbox(id: &str, port: u16) -> Place {
        Place::Sandbox { id: id.to_owned(), port }
    }

    #[test]
    fn headers_go_before_host_before_signature_before_path() {
        let both = [("e2b-sandbox-id", "abc"), ("e2b-sandbox-port", "49983")];
        assert_eq!(at("/sandboxes", &both), sandbox("abc", 49983));
        assert_eq!(at("/metrics", &both), sandbox("abc", 49983));
        assert_eq!(at("/v1/boxes", &[("host", "80-abc.box.test")]), sandbox("abc", 80));
        assert_eq!(at("/files?path=a&signature=v1_x", &[("host", "h:1")]), Place::Signed);
        assert_eq!(at("/sandboxes/abc", &[]), Place::Control);
        assert_eq!(at("/v2/sandboxes", &[]), Place::Control);
        for native in ["/v2/boxes", "/v1/boxes", "/metrics", "/healthz", "/", "/openapi.json"] {
            assert_eq!(at(native, &[("host", "127.0.0.1:7080")]), Place::Elsewhere, "{native}");
        }
    }

    #[test]
    fn half_a_name_is_refused_and_not_guessed() {
        for headers in [
            vec![("e2b-sandbox-id", "abc")],
            vec![("e2b-sandbox-port", "49983")],
            vec![("e2b-sandbox-id", "abc"), ("e2b-sandbox-port", "x")],
            vec![("e2b-sandbox-id", "abc"), ("e2b-sandbox-id", "abd"), ("e2b-sandbox-port", "1")],
        ] {
            assert!(matches!(at("/health", &headers), Place::Nowhere(_)), "{headers:?}");
        }
        assert!(matches!(at("/files?path=a", &[]), Place::Nowhere(_)));
        assert!(matches!(at("/process.Process/List", &[]), Place::Nowhere(_)));
    }

    #[test]
    fn a_host_that_only_looks_like_a_sandbox_is_none() {
        for host in ["a-b.c", "80-ABC.c", "80-.c", "-abc.c", "80-abc", "192.168.0.1", "8x-abc.c"] {
            assert_eq!(at("/", &[("host", host)]), Place::Elsewhere, "{host}");
        }
    }
}
