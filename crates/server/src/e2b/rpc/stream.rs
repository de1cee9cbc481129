//! Streams: the answer to a call that gives many messages, or that takes many.

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};
use serde_json::{Value, json};

use super::error::RpcError;
use super::frames::{END, frame};
use super::message::Codec;
use super::schema::Shape;
use crate::e2b::feed::{self, Filler};

/// Seconds without an event after which a stream says that it is there, unless its caller wants otherwise.
pub(super) const KEEPALIVE: u64 = 90;
pub(super) const MOST_KEEPALIVE: u64 = 3_600;

/// How the messages of a call are written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(super) codec: Codec,
    pub(super) takes: Shape,
    pub(super) gives: Shape,
}

/// The way to answer a stream. Dropped before its end only when nobody listens any more.
#[derive(Debug)]
pub(crate) struct Answering {
    call: Call,
    filler: Filler,
}

impl Call {
    /// An answer that is about to be written.
    pub(crate) fn begin(self) -> (Answering, Response<Body>) {
        let (filler, body) = feed::channel();
        (Answering { call: self, filler }, response(self.codec, body))
    }

    /// An answer that is only an error.
    pub(crate) fn refuse(&self, error: &RpcError) -> Response<Body> {
        refused(self.codec, error)
    }
}

impl Answering {
    /// Sends a message. `false`: nobody is there any more.
    pub(crate) async fn send(&self, message: &Value) -> bool {
        match self.call.codec.encode(self.call.gives, message) {
            Ok(bytes) => self.filler.send(frame(0, &bytes)).await,
            Err(_) => false,
        }
    }

    /// Waits until nobody is there any more.
    pub(crate) async fn left_alone(&self) {
        self.filler.left_alone().await;
    }

    /// All was said.
    pub(crate) async fn end(self) {
        self.filler.send(frame(END, b"{}")).await;
    }

    /// It went wrong.
    pub(crate) async fn fail(self, error: &RpcError) {
        self.filler.send(last(error)).await;
    }

    /// The sandbox ended: the connection breaks off.
    pub(crate) async fn cut(self) {
        self.filler.cut().await;
    }
}

fn last(error: &RpcError) -> Bytes {
    frame(END, json!({ "error": error.show(), "metadata": {} }).to_string().as_bytes())
}

fn response(codec: Codec, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let kind = match codec {
        Codec::Json => "application/connect+json",
        Codec::Proto => "application/connect+proto",
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A stream that failed before its first message: still a stream.
pub(super) fn refused(codec: Codec, error: &RpcError) -> Response<Body> {
    response(codec, Body::from(last(error)))
}
