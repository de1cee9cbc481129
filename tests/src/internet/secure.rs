//! Servers of the small internet that speak TLS, and an authority that its host believes.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, Stream};

use super::{Internet, Log, lock};
use crate::{Caller, text};

/// Where the gateway looks for authorities of the host.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
const PORT: u16 = 443;
/// Longer than a request takes to come on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const MOST: usize = 64 * 1024;

impl Internet {
    /// A server for one name, over TLS that the host believes, which gives back the head of every request and remembers it;
    /// `false`, and reported: the host has no bundle that could name its authority.
    pub fn secure_echo(&self, caller: &Caller, name: &str) -> bool {
        self.secure_server(caller, &[name], |visitor| {
            let Some(head) = visitor.head() else { return };
            let length = head.len();
            visitor.say(
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{head}")
                    .as_bytes(),
            );
        })
    }

    /// A server for these names, over TLS that the host believes: each visitor has a thread of its own, and the end of what is
    /// done with it is the end of its connection. `false`, and reported: the host has no bundle that could name its authority.
    pub fn secure_server(
        &self,
        caller: &Caller,
        names: &[&str],
        with: impl Fn(&mut Visitor<'_>) + Send + Sync + 'static,
    ) -> bool {
        let (authority, config) = believed(names);
        self.speak_tls(caller, authority, config, with)
    }

    /// A server for these names, each with a certificate that does not hold. `false`, and reported: as above.
    pub fn impostor(
        &self,
        caller: &Caller,
        names: &[(&str, Flaw)],
        with: impl Fn(&mut Visitor<'_>) + Send + Sync + 'static,
    ) -> bool {
        let (authority, config) = unbelieved(names);
        self.speak_tls(caller, authority, config, with)
    }

    fn speak_tls(
        &self,
        caller: &Caller,
        authority: String,
        config: Arc<ServerConfig>,
        with: impl Fn(&mut Visitor<'_>) + Send + Sync + 'static,
    ) -> bool {
        if !Path::new(BUNDLE).exists() {
            caller.skip("there are no authorities of the host (apt-get install ca-certificates)");
            return false;
        }
        let bundle = caller.file("believed.crt", authority);
        let host = self.host.id().to_string();
        let words = ["--target", &host, "--mount", "/bin/mount", "--bind", text(&bundle), BUNDLE];
        let ended = caller.root_program(Path::new("/usr/bin/nsenter"), words).end();
        assert_eq!(ended.code, 0, "have the host believe a server: {}", ended.err);
        let (log, with) = (Arc::clone(&self.log), Arc::new(with));
        self.in_world(move || {
            let listener = TcpListener::bind(("::", PORT)).expect("a server");
            listener.set_nonblocking(true).expect("a server");
            thread::spawn(move || {
                while !log.over.load(Ordering::Relaxed) {
                    let Ok((stream, _)) = listener.accept() else {
                        thread::sleep(Duration::from_millis(2));
                        continue;
                    };
                    let (log, config, with) = (Arc::clone(&log), Arc::clone(&config), Arc::clone(&with));
                    thread::spawn(move || visit(stream, config, &log, &*with));
                }
            });
        });
        true
    }

    /// The heads of requests that came over TLS, in order.
    pub fn requests(&self) -> Vec<String> {
        lock(&self.log.requests).clone()
    }
}

/// Somebody who speaks TLS with a server of the small internet.
#[derive(Debug)]
pub struct Visitor<'v> {
    stream: Stream<'v, ServerConnection, TcpStream>,
    log: &'v Log,
}

impl Visitor<'_> {
    /// The head of the next request, which is remembered; `None`: there is none.
    pub fn head(&mut self) -> Option<String> {
        let (mut head, mut byte) = (Vec::new(), [0; 1]);
        while !head.ends_with(b"\r\n\r\n") {
            if head.len() == MOST || self.stream.read_exact(&mut byte).is_err() {
                return None;
            }
            head.extend(byte);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        lock(&self.log.requests).push(head.clone());
        Some(head)
    }

    /// The body of the request with this head, by whichever of the two ways it has a length.
    pub fn body(&mut self, head: &str) -> Option<Vec<u8>> {
        let head = head.to_ascii_lowercase();
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        if let Some(length) = field("content-length:") {
            return self.exactly(length.parse().ok()?);
        }
        let mut body = Vec::new();
        if field("transfer-encoding:").is_none() {
            return Some(body);
        }
        loop {
            let mut line = Vec::new();
            while !line.ends_with(b"\r\n") {
                line.extend(self.exactly(1)?);
            }
            let digits = String::from_utf8(line).ok()?;
            let length = usize::from_str_radix(digits.trim(), 16).ok()?;
            let chunk = self.exactly(length + 2)?;
            body.extend(chunk.get(..length)?);
            if length == 0 {
                return Some(body);
            }
        }
    }

    /// This many bytes.
    fn exactly(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).ok().map(|()| bytes)
    }

    /// Whatever comes next; nothing where it is over.
    pub fn some(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 16_384];
        let length = self.stream.read(&mut bytes).unwrap_or_default();
        bytes.truncate(length);
        bytes
    }

    /// Says these bytes; somebody who is gone does not hear them.
    pub fn say(&mut self, bytes: &[u8]) {
        self.try_say(bytes).ok();
    }

    /// The same, for whoever has to know whether somebody is still there.
    pub fn try_say(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }
}

/// What is wrong with a certificate.
#[derive(Debug, Clone, Copy)]
pub enum Flaw {
    /// Its time is over.
    Expired,
    /// Nobody believes who made it.
    UnknownIssuer,
    /// It is somebody else's.
    OtherName,
}

/// A certificate for each name.
#[derive(Debug)]
struct ByName(HashMap<String, Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.get(hello.server_name()?).cloned()
    }
}

/// One of this name: of two that are called the same, the one that is believed is taken for the other's.
fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

fn as_text(authority: &CertifiedIssuer<'_, KeyPair>) -> String {
    let body = base64::engine::general_purpose::STANDARD.encode(authority.der());
    format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
}

/// An authority as text, and what a server says that has a flaw for each name.
fn unbelieved(names: &[(&str, Flaw)]) -> (String, Arc<ServerConfig>) {
    let (believed, stranger) = (authority("believed"), authority("nobody's"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certified = |(name, flaw): &(&str, Flaw)| {
        let said = if matches!(flaw, Flaw::OtherName) { "somebody.else.test" } else { *name };
        let mut params = CertificateParams::new(vec![said.to_owned()]).expect("a name");
        if matches!(flaw, Flaw::Expired) {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        }
        let own = KeyPair::generate().expect("a key");
        let by = if matches!(flaw, Flaw::UnknownIssuer) { &stranger } else { &believed };
        let certificate = params.signed_by(&own, by).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.serialize_der()));
        let key = CertifiedKey::from_der(vec![certificate.der().clone()], key, &provider).expect("a key");
        ((*name).to_owned(), Arc::new(key))
    };
    let by_name = ByName(names.iter().map(certified).collect());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("TLS")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(by_name));
    (as_text(&believed), Arc::new(config))
}

/// An authority as text, and what a server of these names says by it.
fn believed(names: &[&str]) -> (String, Arc<ServerConfig>) {
    let authority = authority("believed");
    let own = KeyPair::generate().expect("a key");
    let certificate = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        .and_then(|params| params.signed_by(&own, &authority))
        .expect("a certificate");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.serialize_der())),
        )
        .expect("a server's certificate");
    (as_text(&authority), Arc::new(config))
}

/// One visit, from its first byte to its last.
fn visit(
    mut socket: TcpStream,
    config: Arc<ServerConfig>,
    log: &Log,
    with: &(impl Fn(&mut Visitor<'_>) + ?Sized),
) {
    socket.set_nonblocking(false).expect("a visit");
    socket.set_read_timeout(Some(PATIENCE)).expect("a visit");
    let Ok(mut session) = ServerConnection::new(config) else { return };
    let mut visitor = Visitor { stream: Stream::new(&mut session, &mut socket), log };
    with(&mut visitor);
    visitor.stream.conn.send_close_notify();
    visitor.stream.flush().ok();
}
