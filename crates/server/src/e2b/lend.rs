//! The body of a request, lent to whoever answers it and read to its end afterwards.
//!
//! A connection whose request was not read to its end cannot be used again: it is closed, and a client that is still
//! sending, or sends its next request already, hears of a broken connection instead of the answer. SDKs take that for a
//! sandbox that is gone.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONNECTION;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::time::timeout;

/// How much of a body that nobody wanted is still taken, and how long its sender may be silent.
const MOST: usize = 64 * 1024 * 1024;
const SILENCE: Duration = Duration::from_secs(5);

/// What is left of a body. Shared with whoever answers, one after the other.
#[derive(Debug, Clone)]
struct Lent(Arc<Mutex<Option<Body>>>);

/// Whoever lent it.
#[derive(Debug)]
pub(super) struct Lender(Lent);

impl Lent {
    fn body(&self) -> MutexGuard<'_, Option<Body>> {
        // One that panicked while reading left it where it was.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl hyper::body::Body for Lent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut body = self.body();
        let Some(inner) = body.as_mut() else { return Poll::Ready(None) };
        let polled = Pin::new(inner).poll_frame(context);
        if let Poll::Ready(None | Some(Err(_))) = polled {
            *body = None;
        }
        polled
    }
}

/// Lends the body of a request.
pub(super) fn lend(request: Request) -> (Request, Lender) {
    let (parts, body) = request.into_parts();
    let lent = Lent(Arc::new(Mutex::new(Some(body))));
    (Request::from_parts(parts, Body::new(lent.clone())), Lender(lent))
}

impl Lender {
    /// Reads what nobody wanted, then lets the answer go. Where there is too much of it, the answer says that the
    /// connection ends.
    pub(super) async fn settle(self, mut response: Response) -> Response {
        let (mut rest, mut taken) = (self.0, 0_usize);
        loop {
            match timeout(SILENCE, rest.frame()).await {
                Ok(None | Some(Err(_))) => return response,
                Ok(Some(Ok(frame))) => taken = taken.saturating_add(frame.data_ref().map_or(0, Bytes::len)),
                Err(_) => taken = MOST,
            }
            if taken >= MOST {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                return response;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::e2b::feed;

    #[tokio::test(start_paused = true)]
    async fn what_nobody_read_is_read_before_the_answer_goes() {
        let (filler, body) = feed::channel();
        let (request, lender) = lend(Request::new(body));
        drop(request);
        let sent = tokio::spawn(async move {
            for _ in 0..100 {
                assert!(filler.send(vec![0; 1000]).await);
            }
        });
        let response = lender.settle(Response::new(Body::empty())).await;
        sent.await.unwrap();
        assert!(response.headers().get(CONNECTION).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_is_silent_or_has_no_end_is_not_waited_for() {
        let (_silent, body) = feed::channel();
        let (_, lender) = lend(Request::new(body));
        let response = lender.settle(Response::new(Body::empty())).await;
        assert_eq!(response.headers().get(CONNECTION).unwrap(), "close");
        let (filler, body) = feed::channel();
        let (_, lender) = lend(Request::new(body));
        tokio::spawn(async move { while filler.send(vec![0; 1 << 20]).await {} });
        let response = lender.settle(Response::new(Body::empty())).await;
        assert_eq!(response.headers().get(CONNECTION).unwrap(), "close");
    }
}
