//! What a caller hears when the answer is no: one stable code, one sentence, what to do about it, one status.
//!
//! Codes are append-only: SDKs key on them. Text of a caller is only ever repeated escaped and cut.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use serde::Serialize;

/// Why a request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The body is not JSON.
    #[error("the body is not JSON: {0}")]
    BadJson(String),
    /// The body is JSON, but not what this route takes.
    #[error("the body is not what this route takes: {0}")]
    BadField(String),
    /// A parameter of the address is not what this route takes.
    #[error("{0}")]
    BadQuery(String),
    /// The request cannot be read.
    #[error("the request cannot be read: {0}")]
    BadRequest(String),
    /// The policy cannot be read or sealed.
    #[error("the policy is not valid: {0}")]
    BadPolicy(#[from] Box<blastbox_policy::PolicyError>),
    /// The image cannot be used.
    #[error("{0}")]
    BadImage(String),
    /// The workspace cannot be used.
    #[error("{0}")]
    BadWorkspace(String),
    /// The command cannot be started by any box.
    #[error("{0}")]
    BadCommand(String),
    /// No key came with the request.
    #[error("this address needs an API key, and the request has none")]
    NoKey,
    /// The key is not one of ours.
    #[error("the API key is not valid")]
    WrongKey,
    /// Another user is at the socket.
    #[error("this socket belongs to another user")]
    WrongUser,
    /// A web page asks.
    #[error("a web page asks, and this daemon takes nothing from it")]
    WrongOrigin,
    /// The tenant has as many connections as it may.
    #[error("this tenant has as many connections as it may")]
    Crowded,
    /// The tenant's requests that are being read or answered hold as much as they may.
    #[error("{}", crate::gather::NO_ROOM)]
    NoBodyRoom,
    /// Only whoever sits at the socket may name directories of this host.
    #[error("{0}")]
    LocalOnly(&'static str),
    /// The directory lies outside of what the operator opened for this tenant.
    #[error("this directory is not among those that the tenant may use as a workspace")]
    WorkspaceNotAllowed,
    /// The output from there on is not whole any more.
    #[error("{bytes} bytes of this output were overwritten before anybody asked for them")]
    OutputOverwritten {
        /// How many.
        bytes: u64,
        /// The place from which on it is whole.
        oldest: u64,
    },
    /// There is no such thing, or it is somebody else's.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The address is none of ours.
    #[error("there is no such route")]
    NoRoute,
    /// The address is one of ours, and takes other methods.
    #[error("this route takes other methods")]
    WrongMethod,
    /// The body is longer than this route takes.
    #[error("the body is longer than {most} bytes")]
    TooLarge {
        /// Most bytes that it may have.
        most: usize,
    },
    /// The body took too long to come.
    #[error("the request did not arrive in time")]
    TooSlow,
    /// The keeper said no.
    #[error("{}", line(.0))]
    Keep(#[from] blastbox_engine::keeper::KeepError),
    /// There is no such module, or none can be brought.
    #[error("{0}")]
    Module(#[from] crate::modules::ModuleTrouble),
    /// The box could not do it with its files.
    #[error("{}", crate::fault::words(.0))]
    File(#[from] blastbox_engine::FileError),
    /// A defect of ours.
    #[error("blastbox failed at this request; the daemon goes on")]
    Defect,
}

/// The whole chain of causes in one line.
pub(crate) use blastbox_engine::causes as line;

/// The code of an answer that says no, for the log.
#[derive(Debug, Clone)]
pub(crate) struct Code(pub(crate) Cow<'static, str>);

/// What stands in the log alone, because it says where things lie on this host.
#[derive(Debug, Clone)]
pub(crate) struct Cause(pub(crate) String);

#[derive(Debug, Serialize)]
struct Envelope<'a> {
    error: Words<'a>,
}

#[derive(Debug, Serialize)]
struct Words<'a> {
    code: &'a str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Trouble {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::BadJson(_) => "bad_json",
            Self::BadField(_) => "bad_field",
            Self::BadQuery(_) => "bad_query",
            Self::BadRequest(_) => "bad_request",
            Self::BadPolicy(_) => "bad_policy",
            Self::BadImage(_) => "bad_image",
            Self::BadWorkspace(_) => "bad_workspace",
            Self::BadCommand(_) => "bad_command",
            Self::NoKey => "key_missing",
            Self::WrongKey => "key_not_valid",
            Self::WrongUser => "wrong_user",
            Self::WrongOrigin => "origin_not_allowed",
            Self::Crowded => "too_many_connections",
            Self::NoBodyRoom => crate::gather::NO_ROOM_CODE,
            Self::LocalOnly(_) => "local_only",
            Self::WorkspaceNotAllowed => "workspace_not_allowed",
            Self::OutputOverwritten { .. } => "output_overwritten",
            Self::NotFound(_) => "not_found",
            Self::NoRoute => "no_such_route",
            Self::WrongMethod => "method_not_allowed",
            Self::TooLarge { .. } => "body_too_large",
            Self::TooSlow => "request_timeout",
            Self::Keep(error) => return crate::verdict::code(error),
            Self::Module(trouble) => return trouble.code(),
            Self::File(error) => crate::fault::code(error),
            Self::Defect => "internal",
        })
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::BadJson(_) | Self::BadQuery(_) | Self::BadRequest(_) => StatusCode::BAD_REQUEST,
            Self::BadField(_)
            | Self::BadPolicy(_)
            | Self::BadImage(_)
            | Self::BadWorkspace(_)
            | Self::BadCommand(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::NoKey | Self::WrongKey => StatusCode::UNAUTHORIZED,
            Self::WrongUser | Self::WrongOrigin | Self::LocalOnly(_) | Self::WorkspaceNotAllowed => {
                StatusCode::FORBIDDEN
            }
            Self::Crowded | Self::NoBodyRoom => StatusCode::TOO_MANY_REQUESTS,
            Self::OutputOverwritten { .. } => StatusCode::CONFLICT,
            Self::NotFound(_) | Self::NoRoute => StatusCode::NOT_FOUND,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Keep(error) => crate::verdict::status(error),
            Self::Module(trouble) => trouble.status(),
            Self::File(error) => crate::fault::status(error),
            Self::Defect => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn fix(&self) -> Option<String> {
        let fix = match self {
            Self::NoKey => {
                "make one with `blastbox key create NAME` and send it as `Authorization: Bearer KEY`"
            }
            Self::WrongKey => "see the names of the keys with `blastbox key ls`",
            Self::BadField(_) | Self::BadQuery(_) | Self::NoRoute | Self::WrongMethod => {
                "see what every route takes at /openapi.json"
            }
            Self::BadPolicy(_) => "see every key and its value with `blastbox policy show --profile default`",
            Self::BadImage(_) => {
                "use \"host\", a name that `blastbox image ls` lists or the operator gave, or (at the socket) a directory that holds a whole root file system"
            }
            Self::WrongUser => "use a daemon of your own, or a key over TCP",
            Self::WrongOrigin => "have the operator name the page in `origins` of the configuration",
            Self::Crowded => "close a connection, or have the operator raise `tenant_connections`",
            Self::NoBodyRoom => "wait until other requests are answered, and send fewer large ones at once",
            Self::LocalOnly(_) => {
                "ask over the daemon's unix socket, or have the operator name it in the configuration"
            }
            Self::WorkspaceNotAllowed => {
                "have the operator add a directory above it to the tenant's list in `[workspaces]`"
            }
            Self::OutputOverwritten { oldest, .. } => {
                return Some(format!(
                    "ask with `?after={oldest}`, or for the events, which say what is missing; a command that is to \
                     wait for its reader from the beginning can wait for a line of input first"
                ));
            }
            Self::Keep(error) => return crate::verdict::fix(error),
            Self::Module(trouble) => trouble.fix()?,
            Self::BadJson(_)
            | Self::BadRequest(_)
            | Self::BadWorkspace(_)
            | Self::BadCommand(_)
            | Self::NotFound(_)
            | Self::TooLarge { .. }
            | Self::TooSlow
            | Self::File(_)
            | Self::Defect => return None,
        };
        Some(fix.to_owned())
    }

    fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Keep(error) => crate::verdict::retry_after(error),
            Self::Module(trouble) => trouble.retry_after(),
            Self::Crowded | Self::NoBodyRoom => Some(Duration::from_secs(1)),
            _ => None,
        }
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response<Body> {
        let code = self.code();
        let words = Words { code: &code, message: self.to_string(), fix: self.fix() };
        // Three strings always become JSON.
        let text = serde_json::to_vec(&Envelope { error: words }).unwrap_or_default();
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Self::NoKey | Self::WrongKey = self {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(wait) = self.retry_after() {
            let seconds = wait.as_secs().max(1);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(Code(code));
        if let Self::Module(trouble) = &self
            && let Some(cause) = trouble.cause()
        {
            response.extensions_mut().insert(Cause(cause));
        }
        response
    }
}
