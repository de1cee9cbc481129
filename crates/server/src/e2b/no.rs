//! What a caller of this face hears when the answer is no: E2B's own shape, with the status repeated in the body.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use blastbox_engine::keeper::KeepError;
use blastbox_engine::{Blame, PauseError, SnapshotError};
use serde_json::{Value, json};

use crate::trouble::{Code, line};

/// Without it the SDKs try three times more on 429, 502, 503 and 504, and their caller waits.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("should-retry");
/// Most characters of a complaint that repeats what a caller sent.
const MOST_ECHOED: usize = 300;

/// An answer that is no.
#[derive(Debug)]
pub(super) struct No {
    status: u16,
    message: String,
    error_code: Option<&'static str>,
    /// Fields beside those that every refusal has.
    more: Vec<(&'static str, Value)>,
    retry_after: Option<u64>,
}

impl No {
    pub(super) fn new(status: u16, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), error_code: None, more: Vec::new(), retry_after: None }
    }

    pub(super) fn bad(message: impl Into<String>) -> Self {
        Self::new(400, message)
    }

    pub(super) fn defect() -> Self {
        Self::new(500, "blastbox failed at this request; the daemon goes on").coded("internal_server_error")
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(
            401,
            "unauthorized access, please provide a valid access token or method signing if supported",
        )
    }

    /// No sandbox of that name belongs to the caller.
    pub(super) fn no_sandbox(id: &str) -> Self {
        Self::new(404, format!("sandbox \"{}\" not found", echo(id)))
    }

    /// The sandbox cannot be reached: it is unknown, gone or paused. The SDKs look for these words.
    pub(super) fn gone(id: &str) -> Self {
        Self::new(502, "The sandbox was not found").with("sandboxId", json!(echo(id)))
    }

    /// It runs, and nothing that is served listens there. The SDKs look for these words.
    pub(super) fn port_closed(id: &str, port: u16) -> Self {
        Self::new(502, "The sandbox is running but port is not open")
            .with("sandboxId", json!(echo(id)))
            .with("port", json!(port))
    }

    pub(super) fn coded(mut self, code: &'static str) -> Self {
        self.error_code = Some(code);
        self
    }

    fn with(mut self, name: &'static str, value: Value) -> Self {
        self.more.push((name, value));
        self
    }

    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// The sentence.
    pub(super) fn message(self) -> String {
        self.message
    }

    /// As a caller sees it.
    pub(super) fn shown(&self) -> Value {
        let mut body = json!({ "code": self.status, "message": self.message });
        if let Some(fields) = body.as_object_mut() {
            fields.extend(self.error_code.map(|code| ("error_code".to_owned(), json!(code))));
            fields.extend(self.more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        }
        body
    }

    /// What the keeper said to a question about this sandbox.
    pub(super) fn kept(error: &KeepError, id: &str) -> Self {
        match error {
            KeepError::NotFound | KeepError::Gone => Self::no_sandbox(id),
            KeepError::WrongPhase(phase) => {
                Self::new(409, format!("sandbox \"{}\" is {}", echo(id), phase.as_str()))
            }
            KeepError::CommandOver | KeepError::CallOver | KeepError::NoTools(_) | KeepError::NoNetwork => {
                Self::new(409, error.to_string())
            }
            KeepError::BadRules(_) => Self::bad(line(error)),
            KeepError::RulesNotChanged(_) => Self::new(500, line(error)),
            KeepError::Refused { refusal } => {
                Self::bad(format!("{refusal}; {}", refusal.fix())).coded("sandbox_create_refused")
            }
            KeepError::QuotaSpent { what } => {
                let end = if what.contains("snapshot") { "delete a snapshot" } else { "end a sandbox" };
                Self::new(429, format!("{error}: {end}, or have the operator raise the quota"))
            }
            KeepError::Busy { retry_after } => {
                let mut busy = Self::new(503, error.to_string()).coded("sandbox_capacity_unavailable");
                busy.retry_after = Some(retry_after.as_secs().max(1));
                busy
            }
            KeepError::Stopping => Self::new(503, error.to_string()),
            KeepError::TooSlow(_) => Self::new(504, error.to_string()).coded("sandbox_placement_timeout"),
            KeepError::Ledger(_) | KeepError::Store(_) | KeepError::Unacknowledged => {
                Self::new(503, line(error))
            }
            KeepError::Pause(PauseError::NotNow(_) | PauseError::Over) => Self::new(409, line(error)),
            KeepError::Pause(PauseError::Host { .. }) => Self::new(500, line(error)),
            KeepError::Pause(PauseError::Unanswered(_)) => Self::new(503, line(error)),
            KeepError::Snapshot(why) => {
                let status = match (why, why.blame()) {
                    (SnapshotError::NotNow, _) => 409,
                    (SnapshotError::Guest(_), _) => 503,
                    (_, Blame::Caller | Blame::Guest) => 400,
                    (_, Blame::Host | Blame::Blastbox) => 500,
                };
                Self::new(status, line(error)).coded(why.code())
            }
            KeepError::Failed(_) => match error.blame() {
                Blame::Caller | Blame::Guest => Self::bad(line(error)).coded("sandbox_create_refused"),
                Blame::Host | Blame::Blastbox => Self::new(500, line(error)).coded("sandbox_create_failed"),
            },
        }
    }
}

/// Text of a caller, escaped and cut.
pub(super) fn echo(text: &str) -> String {
    text.chars().flat_map(char::escape_debug).take(MOST_ECHOED).collect()
}

impl IntoResponse for No {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::from(self.shown().to_string()));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        headers.extend(self.retry_after.map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
        let reason = self.error_code.unwrap_or("e2b");
        response.extensions_mut().insert(Code(reason.into()));
        response
    }
}
