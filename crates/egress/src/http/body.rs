//! Bodies on their way: never whole in memory, never without a deadline, answers without secrets.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep, sleep};

use super::answer;
use crate::credentials::{Patterns, Scrubber};

/// A body of either direction.
pub(super) type AnyBody = UnsyncBoxBody<Bytes, Stopped>;

/// How long a guest may pause in the middle of an upload.
const UPLOAD_PAUSE: Duration = Duration::from_secs(60);
/// How long a server may pause in the middle of an answer: streams of events are quiet for minutes.
const ANSWER_PAUSE: Duration = Duration::from_secs(15 * 60);

/// Why a body did not come to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum Stopped {
    #[error("the body ended before its time")]
    Broken(#[from] hyper::Error),
    #[error("the body paused for too long")]
    Paused,
}

/// What the guest sends: data only. A trailer can change nothing that was judged.
pub(super) fn upload(body: Incoming) -> AnyBody {
    Carried::new(body, UPLOAD_PAUSE, Trailers::Dropped, None).boxed_unsync()
}

/// What the server answers.
pub(super) fn answer(body: Incoming, patterns: Option<Arc<Patterns>>) -> AnyBody {
    Carried::new(body, ANSWER_PAUSE, Trailers::Carried, patterns).boxed_unsync()
}

/// A body that is there whole.
pub(super) fn whole(text: String) -> AnyBody {
    http_body_util::Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trailers {
    Carried,
    Dropped,
}

struct Carried {
    body: Incoming,
    pause: Duration,
    patience: Pin<Box<Sleep>>,
    trailers: Trailers,
    scrub: Option<(Arc<Patterns>, Scrubber)>,
    /// Trailers that wait for the last scrubbed bytes.
    waiting: Option<HeaderMap>,
    over: bool,
}

impl Carried {
    fn new(body: Incoming, pause: Duration, trailers: Trailers, patterns: Option<Arc<Patterns>>) -> Self {
        let scrub = patterns.map(|patterns| (patterns, Scrubber::default()));
        Self { body, pause, patience: Box::pin(sleep(pause)), trailers, scrub, waiting: None, over: false }
    }

    /// The next frame of the inner body, or the end of our patience.
    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.patience.as_mut().reset(Instant::now() + self.pause);
                Poll::Ready(frame.map(|frame| frame.map_err(Stopped::from)))
            }
            Poll::Pending => {
                ready!(self.patience.as_mut().poll(cx));
                Poll::Ready(Some(Err(Stopped::Paused)))
            }
        }
    }

    /// Bytes that were held back for a match that did not come.
    fn rest(&mut self) -> Option<Frame<Bytes>> {
        let (patterns, scrubber) = self.scrub.as_mut()?;
        let rest = scrubber.finish(patterns);
        (!rest.is_empty()).then(|| Frame::data(Bytes::from(rest)))
    }
}

impl Body for Carried {
    type Data = Bytes;
    type Error = Stopped;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Stopped>>> {
        let me = self.get_mut();
        loop {
            if let Some(trailers) = me.waiting.take() {
                return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
            }
            if me.over {
                return Poll::Ready(None);
            }
            let Some(frame) = ready!(me.poll_inner(cx)).transpose()? else {
                me.over = true;
                match me.rest() {
                    Some(rest) => return Poll::Ready(Some(Ok(rest))),
                    None => return Poll::Ready(None),
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    let Some((patterns, scrubber)) = me.scrub.as_mut() else {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    };
                    let clean = scrubber.feed(patterns, &data);
                    if !clean.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(Bytes::from(clean)))));
                    }
                }
                Err(frame) => {
                    me.over = true;
                    if let (Ok(mut trailers), Trailers::Carried) = (frame.into_trailers(), me.trailers) {
                        // Who reads a trailer may read it as a header: what a server may not say there it may not say here.
                        answer::strip(&mut trailers);
                        if let Some((patterns, _)) = &me.scrub {
                            answer::scrub(&mut trailers, patterns);
                        }
                        me.waiting = Some(trailers);
                    }
                    if let Some(rest) = me.rest() {
                        return Poll::Ready(Some(Ok(rest)));
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        let held = self.scrub.is_some() || self.waiting.is_some();
        self.over && self.waiting.is_none() || !held && self.body.is_end_stream()
    }

    /// Scrubbing keeps lengths, so what the server announced stays true.
    fn size_hint(&self) -> SizeHint {
        if self.over { SizeHint::with_exact(0) } else { self.body.size_hint() }
    }
}
