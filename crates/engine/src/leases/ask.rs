//! One question to an HTTP server of the operator's: bounded, one connection, no redirects, JSON both ways.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};
use zeroize::Zeroizing;

/// Largest answer.
const LARGEST: usize = 256 * 1024;
/// Where hosts keep the authorities that they believe.
use blastbox_wire::egress::BUNDLE_FILES;

/// A server.
#[derive(Debug, Clone)]
pub(super) struct Server {
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Zeroizing<Vec<u8>>,
}

impl Server {
    /// `http://HOST:PORT` or `https://HOST:PORT`. `None`: it is neither.
    pub(super) fn parse(address: &str, ca_file: Option<&PathBuf>) -> Option<io::Result<Self>> {
        let (secure, rest) = match address.strip_prefix("https://") {
            Some(rest) => (true, rest),
            None => (false, address.strip_prefix("http://")?),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (rest, if secure { 443 } else { 80 }),
        };
        let clean = host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
        if host.is_empty() || !clean {
            return None;
        }
        let tls = match secure.then(|| client(ca_file)).transpose() {
            Ok(tls) => tls,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Self { host: host.to_owned(), port, tls }))
    }

    /// Asks. Headers may hold a token; they are marked as such.
    pub(super) async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &[u8])],
        body: Vec<u8>,
    ) -> io::Result<Answer> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let Some(tls) = &self.tls else { return self.speak(stream, method, path, headers, body).await };
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(tls)).connect(name, stream).await?;
        self.speak(stream, method, path, headers, body).await
    }

    async fn speak<S>(
        &self,
        stream: S,
        method: Method,
        path: &str,
        headers: &[(&'static str, &[u8])],
        body: Vec<u8>,
    ) -> io::Result<Answer>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut request = Request::builder().method(method).uri(path);
        request = request.header("host", format!("{}:{}", self.host, self.port));
        request = request.header("content-type", "application/json");
        for (name, value) in headers {
            let mut value = hyper::header::HeaderValue::from_bytes(value).map_err(io::Error::other)?;
            value.set_sensitive(true);
            request = request.header(*name, value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(io::Error::other)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let connection = tokio::spawn(connection);
        let answer = async {
            let (parts, body) = sender.send_request(request).await.map_err(io::Error::other)?.into_parts();
            let body = Limited::new(body, LARGEST).collect().await.map_err(io::Error::other)?;
            let body = Zeroizing::new(body.to_bytes().to_vec());
            Ok(Answer { status: parts.status, body })
        };
        let answer = answer.await;
        connection.abort();
        answer
    }
}

/// Believes the operator's file, or else what this host believes.
fn client(ca_file: Option<&PathBuf>) -> io::Result<Arc<ClientConfig>> {
    let bundle = match ca_file {
        Some(path) => std::fs::read(path)?,
        None => BUNDLE_FILES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default(),
    };
    let mut roots = RootCertStore::empty();
    let (read, _) =
        roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok));
    if read == 0 && ca_file.is_some() {
        // Told now, and not as a server that nobody believes.
        return Err(io::Error::new(io::ErrorKind::InvalidData, "there is no certificate in it"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
