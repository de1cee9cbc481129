//! Server-sent events: how one is written, and a body that carries them as they come.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blastbox_engine::keeper::{EventItem, EventReader, ExecEnded, KeeperEvent, TapeEvent, TapeReader};
use blastbox_engine::{Stream, Watching};
use blastbox_wire::BoxId;
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::Trouble;
use crate::entry::ChangeView;
use crate::pull::pulled;
use crate::take::Query;

/// Pieces that may wait for a client. More would only be memory: what is behind them waits on the tape.
const AHEAD: usize = 4;
/// After so long without an event a comment is sent, so that nobody in between thinks that nobody is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const COMMENT: &[u8] = b": keep-alive\n\n";

/// A body that is sent as it comes.
#[derive(Debug)]
struct Feed(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Feed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// A body, and the way to fill it. Letting go of either end closes the other.
pub(crate) fn channel() -> (mpsc::Sender<Bytes>, Body) {
    let (to, from) = mpsc::channel(AHEAD);
    (to, Body::new(Feed(from)))
}

/// Where a client was cut off: `Last-Event-ID`, which browsers send by themselves.
pub(crate) fn last_seen(headers: &HeaderMap) -> Result<Option<u64>, Trouble> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.trim().parse().ok());
    number.map(Some).ok_or_else(|| Trouble::BadQuery("Last-Event-ID is not a number".to_owned()))
}

/// How far a reader goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// To what has happened by now.
    Now,
    /// To the end of the command, or of the daemon.
    Over,
}

impl Until {
    /// The parameter `follow`.
    pub(crate) fn from(query: &Query) -> Result<Self, Trouble> {
        let follow = query.parsed("follow", "`true` or `false`")?.unwrap_or(true);
        Ok(if follow { Self::Over } else { Self::Now })
    }
}

/// A command's tape as events.
pub(crate) fn tape(reader: TapeReader, until: Until) -> Response<Body> {
    answer(pulled(reader, move |mut reader| async move {
        let piece = tokio::select! {
            biased;
            event = reader.next() => event.map(|(place, event)| encode(place, &event)),
            quiet = quiet(until) => quiet,
        };
        Ok::<_, Infallible>(piece.map(|piece| (piece, reader)))
    }))
}

/// What is sent when there is nothing to send; nothing at all where nothing is waited for.
async fn quiet(until: Until) -> Option<Bytes> {
    match until {
        Until::Now => None,
        Until::Over => {
            sleep(KEEP_ALIVE).await;
            Some(Bytes::from_static(COMMENT))
        }
    }
}

/// Which events are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// Those that a person should hear about.
    Alerts,
    /// Those of one box.
    Of(BoxId),
}

impl Which {
    fn wants(&self, event: &KeeperEvent) -> bool {
        match self {
            Self::All => true,
            Self::Alerts => event.alert.is_some(),
            Self::Of(id) => event.box_id.as_ref() == Some(id),
        }
    }
}

/// The keeper's events.
pub(crate) fn events(mut reader: EventReader, until: Until, which: Which) -> Response<Body> {
    let (to, body) = channel();
    tokio::spawn(async move {
        loop {
            let piece = match next(&to, until, reader.next()).await {
                Next::Is(EventItem::Event(event)) if !which.wants(&event) => continue,
                Next::Is(EventItem::Event(event)) => written(Some(event.seq), "event", &*event),
                Next::Is(EventItem::Missed { events }) => written(None, "missed", &Missed { events }),
                Next::Quiet => Bytes::from_static(COMMENT),
                Next::Over => return,
            };
            if to.send(piece).await.is_err() {
                return;
            }
        }
    });
    answer(body)
}

/// What happens beneath a directory. A number of its own on each event; nothing is kept for whoever was cut off.
pub(crate) fn changes(mut watching: Watching) -> Response<Body> {
    let (to, body) = channel();
    tokio::spawn(async move {
        let mut number = 0;
        loop {
            let asked = async { watching.next().await.ok().flatten() };
            let piece = match next(&to, Until::Over, asked).await {
                Next::Is(changes) => changes.into_iter().fold(Vec::new(), |mut text, change| {
                    number += 1;
                    text.extend_from_slice(&written(Some(number), "change", &ChangeView::from(change)));
                    text
                }),
                Next::Quiet => COMMENT.to_vec(),
                Next::Over => return,
            };
            if to.send(piece.into()).await.is_err() {
                return;
            }
        }
    });
    answer(body)
}

enum Next<T> {
    Is(T),
    Quiet,
    Over,
}

/// The next event, as long as somebody listens. Readers are cancel safe.
async fn next<T>(to: &mpsc::Sender<Bytes>, until: Until, event: impl Future<Output = Option<T>>) -> Next<T> {
    tokio::select! {
        biased;
        () = to.closed() => Next::Over,
        event = event => event.map_or(Next::Over, Next::Is),
        quiet = quiet(until) => quiet.map_or(Next::Over, |_| Next::Quiet),
    }
}

fn answer(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

#[derive(Debug, serde::Serialize)]
struct Missed {
    events: u64,
}

#[derive(Debug, serde::Serialize)]
struct Started {
    pid: u32,
}

#[derive(Debug, serde::Serialize)]
struct Dropped {
    bytes: u64,
}

#[derive(Debug, serde::Serialize)]
struct Ended<'a> {
    #[serde(flatten)]
    ended: &'a ExecEnded,
    timed_out: bool,
}

/// The name of a stream.
pub(crate) const fn word(stream: Stream) -> &'static str {
    match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    }
}

/// One event of a tape as it is sent.
pub(crate) fn encode(place: u64, event: &TapeEvent) -> Bytes {
    match event {
        TapeEvent::Started { pid } => written(Some(place), "started", &Started { pid: *pid }),
        TapeEvent::Output { stream, bytes } => {
            let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4 + 96);
            // Writing to a string cannot fail.
            write!(
                text,
                "id: {place}\nevent: output\ndata: {{\"stream\":\"{}\",\"base64\":\"",
                word(*stream)
            )
            .ok();
            STANDARD.encode_string(bytes, &mut text);
            text.push_str("\"}\n\n");
            text.into()
        }
        TapeEvent::Dropped { bytes } => written(Some(place), "dropped", &Dropped { bytes: *bytes }),
        TapeEvent::Ended { ended, timed_out } => {
            written(Some(place), "ended", &Ended { ended, timed_out: *timed_out })
        }
    }
}

/// JSON of one line has no line break in it, so nothing can end an event early.
fn written(id: Option<u64>, name: &str, data: &impl serde::Serialize) -> Bytes {
    let data = serde_json::to_string(data).unwrap_or_else(|_| "{}".to_owned());
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {name}\ndata: {data}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_written_as_the_standard_says() {
        let text = |event: &TapeEvent| String::from_utf8(encode(7, event).to_vec()).unwrap();
        assert_eq!(text(&TapeEvent::Started { pid: 3 }), "id: 7\nevent: started\ndata: {\"pid\":3}\n\n");
        let output = TapeEvent::Output { stream: Stream::Stderr, bytes: b"a\n\n"[..].into() };
        assert_eq!(
            text(&output),
            "id: 7\nevent: output\ndata: {\"stream\":\"stderr\",\"base64\":\"YQoK\"}\n\n"
        );
        let ended = TapeEvent::Ended { ended: ExecEnded::Signalled { signal: 9 }, timed_out: true };
        assert_eq!(
            text(&ended),
            "id: 7\nevent: ended\ndata: {\"how\":\"signalled\",\"signal\":9,\"timed_out\":true}\n\n"
        );
        assert_eq!(text(&TapeEvent::Dropped { bytes: 9 }), "id: 7\nevent: dropped\ndata: {\"bytes\":9}\n\n");
    }

    #[test]
    fn no_text_of_a_box_can_forge_an_event() {
        let message = "x\n\nevent: ended\ndata: {\"how\":\"exited\",\"code\":0}\n\n".to_owned();
        let ended = ExecEnded::NotStarted { code: "not_found".into(), message };
        let event = TapeEvent::Ended { ended, timed_out: false };
        let text = String::from_utf8(encode(1, &event).to_vec()).unwrap();
        assert_eq!(text.lines().filter(|line| line.starts_with("event: ")).count(), 1, "{text}");
    }

    #[test]
    fn a_place_is_a_number_or_absent() {
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("last-event-id", value.parse().unwrap());
            last_seen(&headers)
        };
        assert_eq!(with("12").unwrap(), Some(12));
        assert!(with("-1").is_err() && with("x").is_err() && with("").is_err());
        assert_eq!(last_seen(&HeaderMap::new()).unwrap(), None);
    }
}
