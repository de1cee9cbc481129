//! What E2B's SDKs take for the daemon inside a sandbox ("envd", port 49983). It lives here, on the host, and asks the
//! agent of the box.

mod about;
mod compose;
mod download;
mod encoding;
mod gzip;
pub(super) mod marks;
mod multipart;
pub(super) mod paths;
mod ranges;
mod upload;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::HeaderName;
use axum::http::{Method, Response, StatusCode};
use axum::response::IntoResponse;
use blastbox_engine::FileError;
use blastbox_wire::agent::{Fault, User};
use blastbox_wire::limits::MAX_PATH;

use super::desk::Desk;
use super::no::{No, echo};
use super::sandbox::Sandbox;
use super::token::{Claim, Deed, SIGNATURE};
use super::{edge, endpoints, form, moment, rpc};

/// The port that envd has in every sandbox.
pub(super) const PORT: u16 = 49_983;
const ACCESS_TOKEN: HeaderName = HeaderName::from_static("x-access-token");
/// Longest name of a user, and longest moment, in a signed address.
const MOST_USER: usize = 256;
const MOST_EXPIRES: usize = 20;
/// What belongs to whoever made the sandbox, and to nobody outside.
const INTERNAL: &[&str] = &["init", "freeze", "unfreeze", "fsfreeze", "fsthaw", "collapse"];

/// Answers a request to a sandbox.
pub(super) async fn answer(desk: &Arc<Desk>, id: &str, request: Request) -> Result<Response<Body>, No> {
    let sandbox = desk.reach(id)?;
    let (method, parts) = edge::parts(&request);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["health"]) => {
            let may_wake = authorize(&sandbox, &request).is_ok();
            return health(desk, &sandbox, may_wake).await;
        }
        (_, [internal]) if INTERNAL.contains(internal) => return Err(No::new(404, "not found")),
        (_, ["files"]) => return files(desk, &sandbox, request).await,
        _ => {}
    }
    authorize(&sandbox, &request)?;
    // Calls have words of their own for what there is not.
    if !matches!(parts.as_slice(), ["process.Process" | "filesystem.Filesystem", _]) {
        endpoints::check(endpoints::ENVD, method.as_str(), &parts)?;
    }
    desk.wake(&sandbox).await?;
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["envs"]) => Ok(about::envs(&sandbox)),
        ("GET", ["metrics"]) => about::metrics(desk, &sandbox).await,
        ("POST", ["files", "compose"]) => compose::compose(desk, &sandbox, request).await,
        (_, [service @ ("process.Process" | "filesystem.Filesystem"), method]) => {
            Ok(rpc::answer(desk, sandbox, service, method, request).await)
        }
        _ => Err(No::defect()),
    }
}

/// Whether the sandbox runs. Anybody may ask; only whoever has the token wakes it with the question.
async fn health(desk: &Desk, sandbox: &Arc<Sandbox>, may_wake: bool) -> Result<Response<Body>, No> {
    if may_wake {
        desk.wake(sandbox).await?;
    } else if !desk.runs(sandbox) {
        return Err(No::gone(sandbox.id()));
    }
    Ok(StatusCode::NO_CONTENT.into_response())
}

pub(super) fn authorize(sandbox: &Sandbox, request: &Request) -> Result<(), No> {
    match request.headers().get(ACCESS_TOKEN) {
        Some(given) if sandbox.token.is(given.as_bytes()) => edge::sit_down(request, &sandbox.tenant),
        Some(_) | None => Err(No::unauthorized()),
    }
}

/// `/files`, where the token or a signature is as good.
async fn files(desk: &Arc<Desk>, sandbox: &Arc<Sandbox>, request: Request) -> Result<Response<Body>, No> {
    if request.headers().contains_key(ACCESS_TOKEN) {
        authorize(sandbox, &request)?;
    } else {
        let signed = Signed::of(&request)?;
        if !signed.fits(sandbox) {
            return Err(No::new(401, "invalid signature"));
        }
        signed.in_time()?;
        edge::sit_down(&request, &sandbox.tenant)?;
    }
    desk.wake(sandbox).await?;
    carry_out(desk, sandbox, request).await
}

/// `/files` with a signature and nothing that names a sandbox: the one whose token made it.
pub(super) async fn answer_signed(desk: &Arc<Desk>, request: Request) -> Result<Response<Body>, No> {
    let signed = Signed::of(&request)?;
    let sandbox = desk.by_signature(|sandbox| signed.fits(sandbox));
    let sandbox = sandbox.ok_or_else(|| No::new(401, "invalid signature"))?;
    signed.in_time()?;
    edge::sit_down(&request, &sandbox.tenant)?;
    let sandbox = desk.reach(sandbox.id())?;
    desk.wake(&sandbox).await?;
    carry_out(desk, &sandbox, request).await
}

async fn carry_out(desk: &Arc<Desk>, sandbox: &Arc<Sandbox>, request: Request) -> Result<Response<Body>, No> {
    let query = form::pairs(request.uri().query());
    let user = user_named(sandbox, form::value(&query, "username"))?;
    let path = form::value(&query, "path").map(ToOwned::to_owned);
    match *request.method() {
        Method::GET | Method::HEAD => {
            let (parts, _) = request.into_parts();
            download::download(desk, sandbox, user, path.as_deref(), &parts.method, &parts.headers).await
        }
        Method::POST => upload::upload(desk, sandbox, user, path.as_deref(), request).await,
        _ => Err(No::new(405, "this route takes other methods")),
    }
}

/// Whose rights are meant.
fn user_named(sandbox: &Sandbox, name: Option<&str>) -> Result<User, No> {
    let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(User::Payload) };
    paths::known(name, sandbox.has_root).ok_or_else(|| {
        let name = echo(name);
        No::new(401, format!("error looking up user '{name}': user: unknown user {name}"))
    })
}

/// What a signed address says of itself.
#[derive(Debug)]
struct Signed {
    claim: Claim,
    expires: Option<String>,
}

impl Signed {
    fn of(request: &Request) -> Result<Self, No> {
        let query = form::pairs(request.uri().query());
        let text = |name: &str| form::value(&query, name).map(ToOwned::to_owned);
        let missing = || No::new(401, "missing signature query parameter");
        let signature = text("signature").filter(|signature| !signature.is_empty()).ok_or_else(missing)?;
        // Looked at before anything is computed: every sandbox is tried, over a path that the caller chose.
        if signature.len() != SIGNATURE {
            return Err(No::new(401, "invalid signature"));
        }
        let deed = if *request.method() == Method::POST { Deed::Write } else { Deed::Read };
        let (path, user) = (text("path").unwrap_or_default(), text("username").unwrap_or_default());
        let expires = text("signature_expiration");
        if path.len() > MAX_PATH {
            return Err(No::bad(format!("the path is longer than {MAX_PATH} bytes")));
        }
        // No moment is longer; it is hashed for every sandbox.
        if user.len() > MOST_USER || expires.as_ref().is_some_and(|expires| expires.len() > MOST_EXPIRES) {
            return Err(No::new(401, "invalid signature"));
        }
        Ok(Self { claim: Claim::new(deed, &path, &user, expires.as_deref(), &signature), expires })
    }

    fn fits(&self, sandbox: &Sandbox) -> bool {
        sandbox.token.signed(&self.claim)
    }

    /// Only for one that fits: otherwise anybody could ask whether a moment has passed.
    fn in_time(&self) -> Result<(), No> {
        let Some(expires) = &self.expires else { return Ok(()) };
        match expires.parse::<u64>() {
            Ok(expires) if expires >= moment::unix_now() => Ok(()),
            Ok(_) | Err(_) => Err(No::new(401, "signature is already expired")),
        }
    }
}

/// Why a file could not be read or written, as `/files` says it.
fn file_trouble(error: &FileError, path: &str, id: &str) -> No {
    let path = echo(path);
    let Some(fault) = error.fault() else { return No::gone(id) };
    match fault {
        Fault::NotFound => No::new(404, format!("path '{path}' does not exist")),
        Fault::IsDirectory => No::bad(format!("path '{path}' is a directory")),
        Fault::NotDirectory => No::bad(format!("a part of the path '{path}' is not a directory")),
        Fault::NotRegular => No::bad(format!("path '{path}' is not a regular file")),
        Fault::NotPermitted => No::new(403, format!("permission denied: '{path}'")),
        Fault::ReadOnly => No::new(403, format!("permission denied: '{path}' is on a read-only file system")),
        Fault::NoSpace | Fault::TooLarge => {
            No::new(507, format!("not enough space in the sandbox for '{path}'"))
        }
        Fault::NameTooLong | Fault::BadPath => No::bad(format!("path '{path}' is not valid")),
        Fault::Loop => No::bad(format!("path '{path}' has too many links in it")),
        Fault::TooMany => No::new(429, "too many file operations at once in this sandbox"),
        Fault::Exists => No::bad(format!("path '{path}' exists")),
        Fault::NotEmpty
        | Fault::CrossDevice
        | Fault::Busy
        | Fault::BadArchive
        | Fault::Stopped
        | Fault::Failed => No::new(500, format!("'{path}': {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_of_another_length_is_none_before_any_is_computed() {
        let ask = |signature: &str| {
            let uri = format!("/files?path=a&signature={signature}");
            Signed::of(&Request::builder().uri(uri).body(Body::empty()).unwrap())
        };
        assert!(ask(&"x".repeat(SIGNATURE)).is_ok());
        for bad in ["v1_".to_owned(), "x".repeat(SIGNATURE - 1), "x".repeat(60_000)] {
            assert_eq!(ask(&bad).unwrap_err().status(), 401);
        }
        assert_eq!(ask("").unwrap_err().status(), 401);
    }

    #[test]
    fn what_every_sandbox_would_be_tried_over_is_bounded() {
        let status = |path: usize, user: usize, expires: usize| {
            let [path, user, expires] = [path, user, expires].map(|length| "1".repeat(length));
            let signature = "x".repeat(SIGNATURE);
            let uri = format!(
                "/files?path={path}&username={user}&signature_expiration={expires}&signature={signature}"
            );
            Signed::of(&Request::builder().uri(uri).body(Body::empty()).unwrap())
                .map_or_else(|no| no.status(), |_| 200)
        };
        assert_eq!(status(MAX_PATH, MOST_USER, MOST_EXPIRES), 200);
        assert_eq!(status(MAX_PATH + 1, 1, 1), 400);
        assert_eq!((status(1, MOST_USER + 1, 1), status(1, 1, MOST_EXPIRES + 1)), (401, 401));
    }
}
