//! From a request to a WebSocket: the handshake of RFC 6455.
//!
//! Trust: caller. A line that was handed over keeps its seat at the door for as long as it is open.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sha1::{Digest, Sha1};

use crate::door::Seat;
use crate::{Hall, Trouble};

/// What every server of this protocol adds to a key before it is hashed.
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const VERSION: &str = "13";

/// A line that may be handed over.
#[derive(Debug)]
pub(crate) struct Upgrade {
    line: OnUpgrade,
    accept: String,
    seat: Option<Arc<Seat>>,
}

impl FromRequestParts<Hall> for Upgrade {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, _: &Hall) -> Result<Self, Trouble> {
        let bad = || Trouble::BadRequest("this route speaks WebSocket, version 13".to_owned());
        let headers = &parts.headers;
        let asked = has_word(headers, &CONNECTION, "upgrade") && has_word(headers, &UPGRADE, "websocket");
        let version = headers.get(SEC_WEBSOCKET_VERSION).is_some_and(|version| version == VERSION);
        let key = headers.get(SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
        let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16));
        let (true, true, Some(key)) = (asked, version, key) else { return Err(bad()) };
        let accept = accept(key);
        let line = parts.extensions.remove::<OnUpgrade>().ok_or_else(bad)?;
        Ok(Self { line, accept, seat: parts.extensions.get().cloned() })
    }
}

/// What proves that a server has understood.
#[must_use]
pub fn accept(key: &str) -> String {
    STANDARD.encode(Sha1::new().chain_update(key).chain_update(MAGIC).finalize())
}

fn has_word(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
}

impl Upgrade {
    /// Answers, and hands the line over once the answer is out.
    pub(crate) fn then<F>(self, talk: impl FnOnce(TokioIo<Upgraded>) -> F + Send + 'static) -> Response<Body>
    where
        F: Future<Output = ()> + Send,
    {
        let Self { line, accept, seat } = self;
        tokio::spawn(async move {
            // A caller that went away meanwhile has nothing to say.
            if let Ok(line) = line.await {
                talk(TokioIo::new(line)).await;
            }
            drop(seat);
        });
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        if let Ok(accept) = HeaderValue::from_str(&accept) {
            headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_that_of_the_standard() {
        assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }
}
