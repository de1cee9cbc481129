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
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::time::timeout;

/// How much of a body that nobody wanted is still taken, for how long, and how long its sender may be silent.
const MOST: usize = 64 * 1024 * 1024;
const LONGEST: Duration = Duration::from_secs(10);
const SILENCE: Duration = Duration::from_secs(5);
/// The same for whoever was not let in. A sender that trickles holds a seat at the door no longer than one that is silent.
const MOST_OF_A_STRANGER: usize = 1024 * 1024;
const LONGEST_OF_A_STRANGER: Duration = Duration::from_secs(2);

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
    /// Reads what nobody wanted, then lets the answer go. Where there is too much of it, or it comes too slowly, the
    /// answer says that the connection ends.
    pub(super) async fn settle(self, mut response: Response) -> Response {
        let (most, longest) = match response.status() {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS => {
                (MOST_OF_A_STRANGER, LONGEST_OF_A_STRANGER)
            }
            _ => (MOST, LONGEST),
        };
        if !timeout(longest, drain(self.0, most)).await.unwrap_or(false) {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

/// Reads to the end. `false`: there was too much, or nothing for too long.
async fn drain(mut rest: Lent, most: usize) -> bool {
    let mut taken = 0_usize;
    while taken < most {
        match timeout(SILENCE, rest.frame()).await {
            Ok(None | Some(Err(_))) => return true,
            Ok(Some(Ok(frame))) => taken = taken.saturating_add(frame.data_ref().map_or(0, Bytes::len)),
            Err(_) => return false,
        }
    }
    false
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

    #[tokio::test(start_paused = true)]
    async fn a_sender_that_trickles_is_waited_for_no_longer_than_its_answer_allows() {
        for (status, longest) in
            [(200, LONGEST), (502, LONGEST), (401, LONGEST_OF_A_STRANGER), (429, LONGEST_OF_A_STRANGER)]
        {
            let (filler, body) = feed::channel();
            let (_, lender) = lend(Request::new(body));
            tokio::spawn(async move {
                while filler.send(vec![0]).await {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            });
            let begun = tokio::time::Instant::now();
            let response = Response::builder().status(status).body(Body::empty()).unwrap();
            let response = lender.settle(response).await;
            assert_eq!(response.headers().get(CONNECTION).unwrap(), "close");
            assert!(begun.elapsed() <= longest + Duration::from_millis(1), "{status}: {:?}", begun.elapsed());
        }
        // Whoever was not let in sends a megabyte at most.
        let (filler, body) = feed::channel();
        let (_, lender) = lend(Request::new(body));
        let sent = tokio::spawn(async move {
            let mut pieces = 0;
            while filler.send(vec![0; 64 * 1024]).await {
                pieces += 1;
            }
            pieces
        });
        let response = Response::builder().status(403).body(Body::empty()).unwrap();
        assert_eq!(lender.settle(response).await.headers().get(CONNECTION).unwrap(), "close");
        assert!(sent.await.unwrap() < 32);
    }
}
