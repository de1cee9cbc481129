//! One question to one host, and where its answer leads.
//!
//! Must not: send a password or token to another host than the one it was given for, or anything in the open to another
//! machine unless the caller said so.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue, LOCATION};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::RegistryError;
use super::reference::{host_of, is_loopback};
use crate::outbound::tls;

/// For a connection, and for the head of an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two pieces of an answer.
const BREATH: Duration = Duration::from_secs(60);
/// Hops from one address to the next.
const MOST_HOPS: usize = 5;

/// How registries are reached.
#[derive(Clone)]
pub(super) struct Lines {
    tls: TlsConnector,
    insecure: bool,
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("insecure", &self.insecure).finish_non_exhaustive()
    }
}

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// An answer, and who gave it.
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    pub(super) host: String,
}

impl Lines {
    pub(super) fn new(ca: Option<&Path>, insecure: bool) -> Result<Self, RegistryError> {
        let tls = TlsConnector::from(Arc::new(tls::client(ca)?));
        Ok(Self { tls, insecure })
    }

    /// Asks, and follows where the answer leads. The token goes to the first host and to nobody else.
    pub(super) async fn get(
        &self,
        address: &str,
        accept: &str,
        token: Option<&HeaderValue>,
    ) -> Result<Answer, RegistryError> {
        let mut address = address.to_owned();
        let first = parse(&address)?.authority().map(ToString::to_string);
        for _ in 0..=MOST_HOPS {
            let uri = parse(&address)?;
            let own = uri.authority().map(ToString::to_string) == first;
            let answer = self.once(&uri, accept, token.filter(|_| own)).await?;
            if !answer.response.status().is_redirection() {
                return Ok(answer);
            }
            address = next(&uri, &answer)?;
        }
        let host = first.unwrap_or_default();
        Err(RegistryError::Redirect { host, why: format!("there are more than {MOST_HOPS} hops") })
    }

    async fn once(
        &self,
        uri: &Uri,
        accept: &str,
        token: Option<&HeaderValue>,
    ) -> Result<Answer, RegistryError> {
        let authority = uri.authority().map(ToString::to_string).unwrap_or_default();
        let name = host_of(&authority).to_owned();
        let secure = uri.scheme_str() == Some("https");
        if !(secure || self.insecure || is_loopback(&name)) {
            return Err(RegistryError::Insecure { address: uri.to_string().chars().take(200).collect() });
        }
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let host = authority.clone();
        let talk = async {
            let line = self.connect(&name, port, secure).await;
            let line = line.map_err(|source| RegistryError::Connect { host: host.clone(), source })?;
            let failed = |source| RegistryError::Talk { host: host.clone(), source };
            let (mut sender, connection) = http1::handshake(TokioIo::new(line)).await.map_err(failed)?;
            // Ends with the answer; what goes wrong there is seen in the answer.
            tokio::spawn(connection);
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            let mut request = Request::get(path)
                .header(HOST, &authority)
                .header(ACCEPT, accept)
                .header("user-agent", concat!("blastbox/", env!("CARGO_PKG_VERSION")));
            if let Some(token) = token {
                request = request.header(AUTHORIZATION, token);
            }
            let request = request
                .body(Empty::<Bytes>::new())
                .map_err(|error| RegistryError::Redirect { host: host.clone(), why: error.to_string() })?;
            sender.send_request(request).await.map_err(failed)
        };
        let response = timeout(PATIENCE, talk).await;
        let response =
            response.unwrap_or_else(|_| Err(RegistryError::TooSlow { host: authority.clone() }))?;
        Ok(Answer { response, host: authority })
    }

    async fn connect(&self, host: &str, port: u16, secure: bool) -> io::Result<Box<dyn Wire>> {
        let line = TcpStream::connect((host, port)).await?;
        line.set_nodelay(true)?;
        if !secure {
            return Ok(Box::new(line));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Box::new(self.tls.connect(name, line).await?))
    }
}

pub(super) fn parse(address: &str) -> Result<Uri, RegistryError> {
    let shown: String = address.chars().take(200).collect();
    let bad = |why: &str| RegistryError::Redirect { host: shown.clone(), why: why.to_owned() };
    let uri: Uri = address.parse().map_err(|_| bad("it is no address"))?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    match uri.authority() {
        // A name and a password in an address would end up in logs.
        Some(authority) if known && !authority.as_str().contains('@') => Ok(uri),
        _ => Err(bad("it is neither http nor https, or holds a password")),
    }
}

/// The address that an answer leads to.
fn next(from: &Uri, answer: &Answer) -> Result<String, RegistryError> {
    let bad = |why: &str| RegistryError::Redirect { host: answer.host.clone(), why: why.to_owned() };
    let to = answer.response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
    let to = to.ok_or_else(|| bad("it does not say where to"))?;
    let scheme = from.scheme_str().unwrap_or("https");
    if to.starts_with('/') && !to.starts_with("//") {
        return Ok(format!("{scheme}://{}{to}", answer.host));
    }
    if scheme == "https" && !to.starts_with("https://") {
        return Err(bad("it leads from encryption into the open"));
    }
    Ok(to.to_owned())
}

impl Answer {
    /// The next piece of its body. `None`: that was all.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, RegistryError> {
        loop {
            let frame = timeout(BREATH, self.response.body_mut().frame()).await;
            let frame = frame.map_err(|_| RegistryError::TooSlow { host: self.host.clone() })?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame.map_err(|source| RegistryError::Talk { host: self.host.clone(), source })?;
            // What is not data is a trailer, which says nothing.
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
    }

    /// The whole body, where it is short.
    pub(super) async fn whole(&mut self, what: &str, most: u64) -> Result<Vec<u8>, RegistryError> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            body.extend_from_slice(&piece);
            if u64::try_from(body.len()).unwrap_or(u64::MAX) > most {
                let (host, what) = (self.host.clone(), what.to_owned());
                let why = format!("it is longer than {most} bytes");
                return Err(RegistryError::Answer { host, what, why });
            }
        }
        Ok(body)
    }
}
