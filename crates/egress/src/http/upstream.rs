//! The connections to the server of one flow. They belong to this flow alone: no other connection of the box, and no
//! other box, ever speaks over them.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use blastbox_wire::egress::Reason;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::body::AnyBody;
use super::unreached::Unreached;
use crate::decide::{Allowed, Target};
use crate::flow::{Flow, Stop};
use crate::house::House;
use crate::tls::{Offer, Roots};

/// How long a server may take for its side of TLS.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// How long a server may think before it begins to answer. Models do think.
const THINKING: Duration = Duration::from_secs(15 * 60);
/// Largest head of an answer.
const LARGEST_HEAD: usize = 256 * 1024;

/// Lines for one request after the other that wait for the next. Each but one has a place that other connections of the box may need.
const MOST_IDLE: usize = 8;

/// How the server is spoken to.
#[derive(Debug, Clone)]
pub(super) enum Speech {
    Plain,
    Tls(Roots, Offer),
}

/// The connections to one server.
#[derive(Debug)]
pub(super) struct Upstream {
    house: Arc<House>,
    flow: Flow,
    speech: Speech,
    idle: Mutex<Idle>,
    /// One connection is made at a time: requests that come meanwhile may find that they can share it.
    making: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Idle {
    one_by_one: Vec<http1::SendRequest<AnyBody>>,
    shared: Option<http2::SendRequest<AnyBody>>,
}

enum Line {
    OneByOne(http1::SendRequest<AnyBody>),
    Shared(http2::SendRequest<AnyBody>),
}

/// Why a request got no answer.
enum Unanswered {
    /// Nothing of it was sent.
    Unsent(Box<Request<AnyBody>>),
    /// Its line has ended.
    Ended,
    /// Its line goes on: this one request was taken and refused.
    Reset,
}

impl Upstream {
    pub(super) fn new(house: Arc<House>, flow: Flow, speech: Speech) -> Arc<Self> {
        Arc::new(Self { house, flow, speech, idle: Mutex::default(), making: tokio::sync::Mutex::default() })
    }

    /// Sends a request for which this permission was given. Its target is the path, its host the permission's. Twice at most: a server
    /// that could have it repeated would get it, and a secret in it, as often as it likes.
    pub(super) async fn send(
        self: &Arc<Self>,
        allowed: &Allowed,
        request: Request<AnyBody>,
    ) -> Result<Response<Incoming>, Unreached> {
        let (line, fresh) = match self.take() {
            Some(line) => (line, false),
            None => {
                let _making = self.making.lock().await;
                match self.take() {
                    Some(line) => (line, false),
                    None => (self.connect(allowed).await?, true),
                }
            }
        };
        let again = if fresh { None } else { copy(&request) };
        let again = match (self.ask(line, request, allowed).await?, again) {
            (Ok(response), _) => return Ok(response),
            // The server closed a waiting connection: that is not an answer. What was not sent, or changes nothing by being sent
            // twice, is sent over a new one.
            (Err(Unanswered::Unsent(unsent)), _) if !fresh => *unsent,
            (Err(Unanswered::Ended), Some(again)) => again,
            (Err(Unanswered::Unsent(_) | Unanswered::Ended | Unanswered::Reset), _) => {
                return Err(Reason::BrokenUpstream.into());
            }
        };
        let line = {
            let _making = self.making.lock().await;
            // Of those that waited with the one that has ended, others may have, too. One that can be shared was made since.
            match self.take_shared() {
                Some(line) => line,
                None => self.connect(allowed).await?,
            }
        };
        self.ask(line, again, allowed).await?.map_err(|_| Reason::BrokenUpstream.into())
    }

    /// One try, as long as the server may think.
    async fn ask(
        self: &Arc<Self>,
        line: Line,
        request: Request<AnyBody>,
        allowed: &Allowed,
    ) -> Result<Result<Response<Incoming>, Unanswered>, Reason> {
        timeout(THINKING, self.speak(line, request, allowed)).await.map_err(|_| Reason::Timeout)
    }

    fn take(&self) -> Option<Line> {
        self.take_shared().or_else(|| {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            std::iter::from_fn(|| idle.one_by_one.pop()).find(|line| line.is_ready()).map(Line::OneByOne)
        })
    }

    fn take_shared(&self) -> Option<Line> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.shared.as_ref().is_some_and(|shared| shared.is_closed()) {
            idle.shared = None;
        }
        idle.shared.clone().map(Line::Shared)
    }

    async fn speak(
        self: &Arc<Self>,
        line: Line,
        request: Request<AnyBody>,
        allowed: &Allowed,
    ) -> Result<Response<Incoming>, Unanswered> {
        let (mut parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let scheme = if matches!(self.speech, Speech::Plain) { "http" } else { "https" };
        let authority = authority(allowed, scheme);
        match line {
            Line::Shared(mut line) => {
                parts.headers.remove(http::header::HOST);
                parts.uri =
                    format!("{scheme}://{authority}{target}").parse().map_err(|_| Unanswered::Reset)?;
                parts.version = http::Version::HTTP_2;
                let sent = line.try_send_request(Request::from_parts(parts, body)).await;
                sent.map_err(|mut error| match error.take_message() {
                    Some(unsent) => Unanswered::Unsent(Box::new(unsent)),
                    None if line.is_closed() => Unanswered::Ended,
                    None => self.turned_away(error.error()),
                })
            }
            Line::OneByOne(mut line) => {
                let host = http::HeaderValue::from_str(&authority).map_err(|_| Unanswered::Reset)?;
                parts.headers.insert(http::header::HOST, host);
                parts.uri = target.parse().map_err(|_| Unanswered::Reset)?;
                parts.version = http::Version::HTTP_11;
                let sent = line.try_send_request(Request::from_parts(parts, body)).await;
                let response = sent.map_err(|mut error| match error.take_message() {
                    Some(unsent) => Unanswered::Unsent(Box::new(unsent)),
                    None => Unanswered::Ended,
                })?;
                keep(Arc::downgrade(self), line);
                Ok(response)
            }
        }
    }

    /// What a server says that goes away, or has not looked at a request: it may be sent again, as where its line has ended.
    fn turned_away(&self, error: &hyper::Error) -> Unanswered {
        let Some(said) = std::error::Error::source(error).and_then(|error| error.downcast_ref::<h2::Error>())
        else {
            return Unanswered::Reset;
        };
        if said.is_go_away() {
            // It is open until it has answered others, and takes no more.
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).shared = None;
        }
        let refused = said.reason() == Some(h2::Reason::REFUSED_STREAM);
        if said.is_remote() && (said.is_go_away() || refused) { Unanswered::Ended } else { Unanswered::Reset }
    }

    async fn connect(self: &Arc<Self>, allowed: &Allowed) -> Result<Line, Unreached> {
        let dialled = self.house.try_dial(&self.flow, allowed).await?;
        let Speech::Tls(roots, offer) = &self.speech else {
            return Ok(self.one_by_one(dialled).await?);
        };
        let Target::Name(name) = allowed.target() else { return Err(Reason::NameMissing.into()) };
        let name =
            rustls_pki_types::ServerName::try_from(name.as_str().to_owned()).map_err(|_| Reason::BadName)?;
        let connector = TlsConnector::from(roots.client(*offer));
        let stream = timeout(HANDSHAKE, connector.connect(name, dialled))
            .await
            .map_err(|_| Reason::Timeout)?
            .map_err(|error| Unreached::in_tls(error.get_ref().and_then(|inner| inner.downcast_ref())))?;
        Ok(if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
            self.shared(stream).await?
        } else {
            self.one_by_one(stream).await?
        })
    }

    async fn one_by_one<S>(&self, stream: S) -> Result<Line, Reason>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (line, connection) = http1::Builder::new()
            .max_buf_size(LARGEST_HEAD)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| Reason::BrokenUpstream)?;
        // It ends with the last sender, or when the rules end it: a server that reads nothing keeps it from seeing that the
        // senders are gone. What goes wrong on it is told to whoever waits for an answer.
        let stop = self.flow.stop();
        let connection = Box::pin(connection.with_upgrades());
        tokio::spawn(async move { stop.cut(connection).await });
        Ok(Line::OneByOne(line))
    }

    async fn shared<S>(&self, stream: S) -> Result<Line, Reason>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stop = self.flow.stop();
        let (line, connection) = http2::Builder::new(WithFlow(Arc::clone(&stop)))
            .timer(TokioTimer::new())
            .keep_alive_interval(Duration::from_secs(30))
            .max_header_list_size(u32::try_from(LARGEST_HEAD).unwrap_or(u32::MAX))
            .initial_stream_window_size(256 * 1024)
            .initial_connection_window_size(1024 * 1024)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|_| Reason::BrokenUpstream)?;
        let connection = Box::pin(connection);
        tokio::spawn(async move { stop.cut(connection).await });
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).shared = Some(line.clone());
        Ok(Line::Shared(line))
    }
}

/// Does what HTTP/2 does beside its connection, and ends it with the flow: the connection itself is such a task there, and a
/// body that waits for a server to take it another.
#[derive(Debug, Clone)]
pub(super) struct WithFlow(pub(super) Arc<Stop>);

impl<F: Future<Output: Send> + Send + 'static> hyper::rt::Executor<F> for WithFlow {
    fn execute(&self, work: F) {
        let (stop, work) = (Arc::clone(&self.0), Box::pin(work));
        tokio::spawn(async move { stop.cut(work).await });
    }
}

/// The same request, if sending it twice is as good as sending it once.
fn copy(request: &Request<AnyBody>) -> Option<Request<AnyBody>> {
    if !request.method().is_idempotent() || !request.body().is_end_stream() {
        return None;
    }
    let mut copy = Request::new(super::body::whole(String::new()));
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    Some(copy)
}

/// Keeps a line for the next request, once the answer has been read to its end.
fn keep(upstream: Weak<Upstream>, mut line: http1::SendRequest<AnyBody>) {
    tokio::spawn(async move {
        if line.ready().await.is_ok()
            && let Some(upstream) = upstream.upgrade()
        {
            let mut idle = upstream.idle.lock().unwrap_or_else(PoisonError::into_inner);
            // Those that their server has closed meanwhile keep no place from one that is open.
            idle.one_by_one.retain(|line| line.is_ready());
            if idle.one_by_one.len() < MOST_IDLE {
                idle.one_by_one.push(line);
            }
        }
    });
}

fn authority(allowed: &Allowed, scheme: &str) -> String {
    match (scheme, allowed.port()) {
        ("https", 443) | ("http", 80) => allowed.target().to_string(),
        (_, port) => format!("{}:{port}", allowed.target()),
    }
}
