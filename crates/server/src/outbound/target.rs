//! An address that the operator named, and how something is sent there: one connection per question, bounded in time and
//! in what is taken of the answer.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::tls;

/// From the first byte to the last of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most bytes of an answer.
const MOST: usize = 64 * 1024;
/// Most bytes of a file that holds a token or a secret.
const MOST_SECRET: u64 = 4096;

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadTarget {
    /// It is none.
    #[error("{0:?} is no address: write http://HOST[:PORT]/PATH or https://…")]
    NotAnAddress(String),
    /// Its token, secret or certificate cannot be read.
    #[error("cannot read {path}")]
    File {
        /// Which file.
        path: std::path::PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// Its token cannot be sent in a header.
    #[error("what {path} holds cannot be sent in a header")]
    Token {
        /// Which file.
        path: std::path::PathBuf,
    },
    /// TLS cannot be set up.
    #[error("cannot set up TLS for it")]
    Tls(#[source] rustls::Error),
    /// There is no certificate to trust.
    #[error("{path} holds no certificate")]
    NoCertificate {
        /// Which file.
        path: std::path::PathBuf,
    },
}

/// Why something did not arrive.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Nobody answers there.
    #[error("cannot connect")]
    Connect(#[source] io::Error),
    /// It is not HTTP that answers, or it broke off.
    #[error("the answer cannot be read")]
    Talk(#[source] hyper::Error),
    /// The question could not be built.
    #[error("the request cannot be built")]
    Build(#[from] hyper::http::Error),
    /// The answer is longer than any that is wanted.
    #[error("the answer is longer than 64 KiB, or broke off")]
    Answer,
    /// Nothing came in time.
    #[error("no answer after 10 s")]
    TooSlow,
    /// It says no.
    #[error("it answered {0}")]
    Status(StatusCode),
}

/// An address.
#[derive(Clone)]
pub struct Target {
    host: String,
    port: u16,
    path: String,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    token: Option<HeaderValue>,
}

impl fmt::Debug for Target {
    /// Without the token, and without the path, which may hold one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({}:{})", self.host, self.port)
    }
}

trait Line: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Line for T {}

impl Target {
    /// Reads an address. `ca`: certificates to trust instead of the host's.
    pub fn parse(text: &str, ca: Option<&Path>) -> Result<Self, BadTarget> {
        let bad = || BadTarget::NotAnAddress(text.chars().take(200).collect());
        let uri: hyper::Uri = text.parse().map_err(|_| bad())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(bad)?;
        // A name and a password in an address end up in logs.
        if uri.authority().is_none_or(|authority| authority.as_str().contains('@')) {
            return Err(bad());
        }
        let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let (usual, tls) = match uri.scheme_str() {
            Some("http") => (80, None),
            Some("https") => {
                let whose = ServerName::try_from(name.clone()).map_err(|_| bad())?;
                (443, Some((TlsConnector::from(Arc::new(tls::client(ca)?)), whose)))
            }
            _ => return Err(bad()),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { host: name, port: uri.port_u16().unwrap_or(usual), path, tls, token: None })
    }

    /// With a token, sent as `Authorization: Bearer`. From a file: configurations are copied about.
    pub fn with_token(mut self, path: &Path) -> Result<Self, BadTarget> {
        let token = read_secret(path)?;
        let token = String::from_utf8(token).ok().map(|token| format!("Bearer {token}"));
        let value = token.and_then(|token| HeaderValue::from_str(&token).ok());
        let mut value = value.ok_or_else(|| BadTarget::Token { path: path.to_owned() })?;
        value.set_sensitive(true);
        self.token = Some(value);
        Ok(self)
    }

    /// The same host, another path.
    #[must_use]
    pub fn at(&self, path: &str) -> Self {
        Self { path: format!("{}{path}", self.path.trim_end_matches('/')), ..self.clone() }
    }

    /// Sends a body, and gives what comes back where that is a yes.
    pub async fn post(
        &self,
        kind: &'static str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Result<Bytes, SendError> {
        timeout(PATIENCE, self.talk(kind, headers, body)).await.unwrap_or(Err(SendError::TooSlow))
    }

    async fn talk(
        &self,
        kind: &'static str,
        headers: &[(&'static str, String)],
        body: Vec<u8>,
    ) -> Result<Bytes, SendError> {
        let line = self.connect().await.map_err(SendError::Connect)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(line)).await.map_err(SendError::Talk)?;
        // Ends with the answer; what goes wrong there is seen in the answer.
        tokio::spawn(connection);
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let mut request = Request::post(&self.path)
            .header(HOST, format!("{host}:{}", self.port))
            .header(CONTENT_TYPE, kind)
            .header("user-agent", concat!("blastbox/", env!("CARGO_PKG_VERSION")));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request.body(Full::new(Bytes::from(body)))?;
        let answer: Response<_> = sender.send_request(request).await.map_err(SendError::Talk)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST).collect().await;
        if !status.is_success() {
            return Err(SendError::Status(status));
        }
        Ok(body.map_err(|_| SendError::Answer)?.to_bytes())
    }

    async fn connect(&self) -> io::Result<Box<dyn Line>> {
        let line = TcpStream::connect((self.host.as_str(), self.port)).await?;
        line.set_nodelay(true)?;
        Ok(match &self.tls {
            Some((connector, name)) => Box::new(connector.connect(name.clone(), line).await?),
            None => Box::new(line),
        })
    }
}

/// What a file holds, without the line break that editors put at its end.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<u8>, BadTarget> {
    use std::io::Read;
    let failed = |source| BadTarget::File { path: path.to_owned(), source };
    let mut secret = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MOST_SECRET).read_to_end(&mut secret).map_err(failed)?;
    secret.truncate(secret.trim_ascii_end().len());
    if secret.is_empty() { Err(failed(io::ErrorKind::UnexpectedEof.into())) } else { Ok(secret) }
}
