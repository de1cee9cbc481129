//! A server of the small internet that speaks TLS, and an authority that its host believes.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
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
        if !Path::new(BUNDLE).exists() {
            caller.skip("there are no authorities of the host (apt-get install ca-certificates)");
            return false;
        }
        let (authority, config) = believed(name);
        let bundle = caller.file("believed.crt", authority);
        let host = self.host.id().to_string();
        let words = ["--target", &host, "--mount", "/bin/mount", "--bind", text(&bundle), BUNDLE];
        let ended = caller.root_program(Path::new("/usr/bin/nsenter"), words).end();
        assert_eq!(ended.code, 0, "have the host believe a server: {}", ended.err);
        let log = Arc::clone(&self.log);
        self.in_world(move || {
            let listener = TcpListener::bind(("::", PORT)).expect("a server");
            listener.set_nonblocking(true).expect("a server");
            thread::spawn(move || {
                while !log.over.load(Ordering::Relaxed) {
                    let Ok((stream, _)) = listener.accept() else {
                        thread::sleep(Duration::from_millis(2));
                        continue;
                    };
                    let (log, config) = (Arc::clone(&log), Arc::clone(&config));
                    thread::spawn(move || answer(stream, config, &log));
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

/// An authority as text, and what a server of this name says by it.
fn believed(name: &str) -> (String, Arc<ServerConfig>) {
    let key = || KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, key()).expect("an authority");
    let own = key();
    let certificate = CertificateParams::new(vec![name.to_owned()])
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
    let body = base64::engine::general_purpose::STANDARD.encode(authority.der());
    (format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"), Arc::new(config))
}

/// One request: its head is the answer.
fn answer(mut socket: TcpStream, config: Arc<ServerConfig>, log: &Log) {
    socket.set_nonblocking(false).expect("a visit");
    socket.set_read_timeout(Some(PATIENCE)).expect("a visit");
    let Ok(mut session) = ServerConnection::new(config) else { return };
    let mut stream = Stream::new(&mut session, &mut socket);
    let (mut head, mut byte) = (Vec::new(), [0; 1]);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() == MOST || stream.read_exact(&mut byte).is_err() {
            return;
        }
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    lock(&log.requests).push(head.clone());
    let length = head.len();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{head}");
    if stream.write_all(answer.as_bytes()).is_ok() {
        stream.conn.send_close_notify();
        stream.flush().ok();
    }
}
