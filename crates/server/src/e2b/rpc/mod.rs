//! Connect-RPC, version 1: unary calls and streams, as JSON or as protobuf.
//!
//! What a service decides is always a Connect error with a word for a code; a stream answers 200 whatever happens, and
//! says how it went in its last frame.
//!
//! Trust: caller.

mod binary;
pub(super) mod error;
mod frames;
mod message;
mod schema;
pub(super) mod stream;

use blastbox_wire::agent::User;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::time::timeout;

use self::error::{Code, RpcError};
use self::message::Codec;
use self::schema::Shape;
use self::stream::Call;
use super::desk::Desk;
use super::envd::paths;
use super::no::echo;
use super::sandbox::Sandbox;
use super::{endpoints, filesystem, process};

pub(super) use self::frames::{Frames, Sent};
pub(super) use self::message::{decoded, wanted};

/// Longest time that a caller may set.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);

/// How a method is called.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Unary,
    /// One message in, many out.
    ServerStream,
    /// Many in, one out.
    ClientStream,
}

/// Everything a method has to do with.
#[derive(Debug, Clone)]
pub(super) struct Context {
    pub(super) desk: Arc<Desk>,
    pub(super) sandbox: Arc<Sandbox>,
    /// Who it is done as.
    pub(super) user: User,
    /// What the caller set for the whole call.
    pub(super) timeout: Option<Duration>,
    /// After so long without an event a stream says that it is there.
    pub(super) keepalive: Duration,
}

fn kind(service: &str, method: &str) -> Option<(Kind, Shape, Shape)> {
    use Kind::{ClientStream, ServerStream, Unary};
    let kind = match (service, method) {
        ("process.Process", "Start" | "Connect") | ("filesystem.Filesystem", "WatchDir") => ServerStream,
        ("process.Process", "StreamInput") => ClientStream,
        _ => Unary,
    };
    let (request, response) = schema::of(service, method)?;
    Some((kind, request, response))
}

/// Answers a call.
pub(super) async fn answer(
    desk: &Arc<Desk>,
    sandbox: Arc<Sandbox>,
    service: &str,
    method: &str,
    request: Request,
) -> Response<Body> {
    let known = endpoints::check(endpoints::ENVD, "POST", &[service, method]);
    let Some((kind, takes, gives)) = kind(service, method).filter(|_| known.is_ok()) else {
        let what = format!("{}/{} is not a procedure of this sandbox", echo(service), echo(method));
        return RpcError::new(Code::Unimplemented, what).unary();
    };
    if *request.method() != Method::POST {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response.headers_mut().insert("allow", HeaderValue::from_static("POST"));
        return response;
    }
    let Some(codec) = codec(request.headers(), kind) else { return wrong_content_type(kind) };
    let context = match context(desk, sandbox, request.headers()) {
        Ok(context) => context,
        Err(error) => return refused(error, kind, codec),
    };
    let body = Sent::with(request);
    match kind {
        Kind::Unary => unary(&context, service, method, (takes, gives), codec, body).await,
        Kind::ServerStream | Kind::ClientStream => {
            let call = Call { codec, takes, gives };
            match (service, method) {
                ("process.Process", "Start") => process::start::answer(context, call, body).await,
                ("process.Process", "Connect") => process::join::answer(context, call, body).await,
                ("process.Process", "StreamInput") => process::input::stream(context, call, body).await,
                ("filesystem.Filesystem", "WatchDir") => filesystem::watch::answer(context, call, body).await,
                _ => RpcError::new(Code::Unimplemented, "not a stream").unary(),
            }
        }
    }
}

fn refused(error: RpcError, kind: Kind, codec: Codec) -> Response<Body> {
    match kind {
        Kind::Unary => error.unary(),
        Kind::ServerStream | Kind::ClientStream => stream::refused(codec, &error),
    }
}

fn codec(headers: &HeaderMap, kind: Kind) -> Option<Codec> {
    let given = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let name = given.split(';').next()?.trim().to_ascii_lowercase();
    match (kind, name.as_str()) {
        (Kind::Unary, "application/json") => Some(Codec::Json),
        (Kind::Unary, "application/proto") => Some(Codec::Proto),
        (Kind::ServerStream | Kind::ClientStream, "application/connect+json") => Some(Codec::Json),
        (Kind::ServerStream | Kind::ClientStream, "application/connect+proto") => Some(Codec::Proto),
        _ => None,
    }
}

fn wrong_content_type(kind: Kind) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    let takes = match kind {
        Kind::Unary => "application/json, application/proto",
        Kind::ServerStream | Kind::ClientStream => "application/connect+json, application/connect+proto",
    };
    response.headers_mut().insert("accept-post", HeaderValue::from_static(takes));
    response
}

/// Who the call is for, and how long it may take.
fn context(desk: &Arc<Desk>, sandbox: Arc<Sandbox>, headers: &HeaderMap) -> Result<Context, RpcError> {
    let user = match user(headers)? {
        None => User::Payload,
        Some(name) => paths::known(&name, sandbox.has_root).ok_or_else(|| {
            RpcError::new(Code::Unauthenticated, format!("invalid username: '{}'", echo(&name)))
        })?,
    };
    let number = |name: &str| {
        let text = headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let bad = || RpcError::new(Code::InvalidArgument, format!("the header {name} is not a number"));
        text.map(|text| text.trim().parse::<u64>().map_err(|_| bad())).transpose()
    };
    let asked = number("connect-timeout-ms")?.filter(|millis| *millis > 0).map(Duration::from_millis);
    let keepalive = number("keepalive-ping-interval").ok().flatten().filter(|seconds| *seconds > 0);
    Ok(Context {
        desk: Arc::clone(desk),
        sandbox,
        user,
        timeout: asked.map(|asked| asked.min(LONGEST_TIMEOUT)),
        keepalive: Duration::from_secs(keepalive.unwrap_or(stream::KEEPALIVE).min(stream::MOST_KEEPALIVE)),
    })
}

/// The user in `Authorization: Basic base64("user:")`. No user: the usual one.
fn user(headers: &HeaderMap) -> Result<Option<String>, RpcError> {
    let Some(value) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let bad = || RpcError::new(Code::Unauthenticated, "the header Authorization is not Basic with a user");
    let text = value.to_str().map_err(|_| bad())?;
    let (scheme, encoded) = text.split_once(' ').ok_or_else(bad)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(bad());
    }
    let decoded = STANDARD.decode(encoded.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let decoded = decoded.ok_or_else(bad)?;
    let user = decoded.split_once(':').map_or(decoded.as_str(), |(user, _)| user);
    Ok(Some(user.to_owned()).filter(|user| !user.is_empty()))
}

async fn unary(
    context: &Context,
    service: &str,
    method: &str,
    (takes, gives): (Shape, Shape),
    codec: Codec,
    body: Sent,
) -> Response<Body> {
    let work = async {
        let bytes = frames::whole(body).await?;
        let message = codec.decode(takes, &bytes)?;
        call(context, service, method, message).await
    };
    let outcome = match context.timeout {
        None => Box::pin(work).await,
        Some(limit) => match timeout(limit, work).await {
            Ok(outcome) => outcome,
            Err(_) => {
                Err(RpcError::new(Code::DeadlineExceeded, "the call took longer than its caller allowed"))
            }
        },
    };
    match outcome.and_then(|message| codec.encode(gives, &message)) {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            let kind = match codec {
                Codec::Json => "application/json",
                Codec::Proto => "application/proto",
            };
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
            response
        }
        Err(error) => error.unary(),
    }
}

async fn call(context: &Context, service: &str, method: &str, message: Value) -> Result<Value, RpcError> {
    match (service, method) {
        ("process.Process", "List") => Ok(process::list(context)),
        ("process.Process", "Update") => process::update(context, wanted(message)?).await,
        ("process.Process", "SendInput") => process::input::send(context, wanted(message)?).await,
        ("process.Process", "SendSignal") => process::signal(context, wanted(message)?).await,
        ("process.Process", "CloseStdin") => process::input::close(context, wanted(message)?).await,
        ("filesystem.Filesystem", "Stat") => filesystem::stat(context, wanted(message)?).await,
        ("filesystem.Filesystem", "MakeDir") => filesystem::make_directory(context, wanted(message)?).await,
        ("filesystem.Filesystem", "Move") => filesystem::rename(context, wanted(message)?).await,
        ("filesystem.Filesystem", "ListDir") => filesystem::list(context, wanted(message)?).await,
        ("filesystem.Filesystem", "Remove") => filesystem::remove(context, wanted(message)?).await,
        ("filesystem.Filesystem", "CreateWatcher") => {
            filesystem::watchers::create(context, wanted(message)?).await
        }
        ("filesystem.Filesystem", "GetWatcherEvents") => {
            filesystem::watchers::events(context, &wanted(message)?)
        }
        ("filesystem.Filesystem", "RemoveWatcher") => {
            filesystem::watchers::remove(context, &wanted(message)?)
        }
        _ => Err(RpcError::new(Code::Unimplemented, "not a unary procedure")),
    }
}
