//! Answers: those of servers on their way back, and our own refusals.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};

use super::body::{AnyBody, whole};
use super::head::named_by_connection;
use crate::credentials::Patterns;

/// Headers of an answer that end here: they are about the connection to us, or lead past us.
const NEVER_CARRIED: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "te",
    "transfer-encoding",
    "upgrade",
    // They advertise other ways to the server (QUIC, another host and port) that the box cannot take.
    "alt-svc",
    // Ours alone: whoever reads it learns of a refusal of the gateway's, and no server can make one up.
    "x-blastbox-denied",
    "alt-used",
];

/// Takes away what must not reach the box.
pub(super) fn strip(headers: &mut HeaderMap) {
    named_by_connection(headers);
    for name in NEVER_CARRIED {
        headers.remove(*name);
    }
}

/// Strikes secrets out of headers. One whose name holds a secret is taken away.
pub(super) fn scrub(headers: &mut HeaderMap, patterns: &Patterns) {
    let named: Vec<HeaderName> =
        headers.keys().filter(|name| patterns.in_name(name.as_str().as_bytes())).cloned().collect();
    for name in named {
        headers.remove(name);
    }
    for value in headers.values_mut() {
        if let Some(clean) = patterns.strike(value.as_bytes()) {
            // Stars are legal in a header; should they ever not be, an empty value says less than a secret.
            *value = HeaderValue::from_bytes(&clean).unwrap_or_else(|_| HeaderValue::from_static(""));
        }
    }
}

/// A refusal that a program can read.
pub(super) fn refusal(status: StatusCode, reason: &str, host: &str, detail: &str) -> Response<AnyBody> {
    let text = text(reason, host, detail);
    let mut response = Response::new(whole(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        "x-blastbox-denied",
        HeaderValue::from_str(reason).unwrap_or(HeaderValue::from_static("denied")),
    );
    response
}

/// The same as bytes, for a connection on which hyper has given up.
pub(super) fn raw_refusal(reason: &str, host: &str, detail: &str) -> Vec<u8> {
    let text = text(reason, host, detail);
    format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncache-control: no-store\r\n\
         x-blastbox-denied: {reason}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}

fn text(reason: &str, host: &str, detail: &str) -> String {
    let body = serde_json::json!({ "blastbox": "denied", "reason": reason, "host": host, "detail": detail });
    format!("{body}\n")
}
