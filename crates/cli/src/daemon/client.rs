//! The line to a daemon: HTTP/1.1 over its unix socket, one connection per question.

use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::problem::{DaemonProblem, No};

/// What is sent with a question.
#[derive(Debug)]
pub(crate) enum Sent {
    /// This, at once.
    Whole(Option<Bytes>),
    /// What comes, as it comes.
    Piped(mpsc::Receiver<Vec<u8>>),
    /// What comes, as it comes, and may break off: the daemon must not take that for its end.
    Poured(mpsc::Receiver<io::Result<Vec<u8>>>),
}

impl Body for Sent {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Piped(pieces) => {
                pieces.poll_recv(context).map(|piece| piece.map(|bytes| Ok(Frame::data(bytes.into()))))
            }
            Self::Poured(pieces) => pieces
                .poll_recv(context)
                .map(|piece| piece.map(|bytes| bytes.map(|bytes| Frame::data(bytes.into())))),
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Whole(bytes) => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                hyper::body::SizeHint::with_exact(u64::try_from(length).unwrap_or(0))
            }
            Self::Piped(_) | Self::Poured(_) => hyper::body::SizeHint::default(),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Envelope {
    error: No,
}

/// The line to a daemon.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    socket: PathBuf,
}

impl Client {
    pub(crate) fn new(socket: PathBuf) -> Self {
        Self { socket }
    }

    /// Asks for a line of its own. Any answer but that is an error.
    pub(crate) async fn upgrade(
        &self,
        path: &str,
        headers: &[(&str, String)],
    ) -> Result<Response<Incoming>, DaemonProblem> {
        let response = self.send(Method::GET, path, headers, Sent::Whole(None)).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            Ok(response)
        } else {
            Err(DaemonProblem::BadEvent)
        }
    }

    /// Asks, and gives the answer while it is still coming. A no is an error.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, String)],
        body: Sent,
    ) -> Result<Response<Incoming>, DaemonProblem> {
        let stream = UnixStream::connect(&self.socket)
            .await
            .map_err(|source| DaemonProblem::NoDaemon { socket: self.socket.clone(), source })?;
        let (mut line, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(DaemonProblem::BrokeOff)?;
        // Ends with the answer; what goes wrong there is seen in the answer.
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder().method(method).uri(path).header("host", "blastbox");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let response = line.send_request(request.body(body)?).await.map_err(DaemonProblem::BrokeOff)?;
        if response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let status = response.status();
        let bytes = whole(response).await?;
        let no = serde_json::from_slice::<Envelope>(&bytes).map(|envelope| envelope.error);
        Err(DaemonProblem::No(no.unwrap_or_else(|_| No {
            code: status.as_str().to_owned(),
            message: status.canonical_reason().unwrap_or("an unknown answer").to_owned(),
            fix: None,
        })))
    }

    /// Asks with JSON, and reads the whole answer.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, DaemonProblem> {
        let body = body.map(serde_json::to_vec).transpose().map_err(DaemonProblem::Unreadable)?;
        let response = self.send(method, path, &[], Sent::Whole(body.map(Bytes::from))).await?;
        let bytes = whole(response).await?;
        let bytes = if bytes.is_empty() { b"null".as_slice() } else { &bytes };
        serde_json::from_slice(bytes).map_err(DaemonProblem::Unreadable)
    }

    /// Asks without a body.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, DaemonProblem> {
        self.ask(Method::GET, path, None::<&()>).await
    }

    /// Asks for something to be done, without a body.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, DaemonProblem> {
        self.ask(Method::POST, path, None::<&()>).await
    }

    /// Asks for text.
    pub(crate) async fn text(&self, path: &str) -> Result<String, DaemonProblem> {
        let response = self.send(Method::GET, path, &[], Sent::Whole(None)).await?;
        Ok(String::from_utf8_lossy(&whole(response).await?).into_owned())
    }
}

/// The whole of an answer.
pub(super) async fn whole(response: Response<Incoming>) -> Result<Bytes, DaemonProblem> {
    Ok(response.into_body().collect().await.map_err(DaemonProblem::BrokeOff)?.to_bytes())
}
