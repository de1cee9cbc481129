//! A room for files, bindings, and a server with Vault's wire.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use blastbox_engine::leases::Tell;
use blastbox_policy::{Binding, BindingParts};
use blastbox_wire::BoxId;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

static ROOMS: AtomicU32 = AtomicU32::new(0);

/// A directory that is gone after the test.
pub(crate) struct Room(pub(crate) PathBuf);

impl Room {
    pub(crate) fn new() -> Self {
        let number = ROOMS.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("blastbox-leases-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

pub(crate) fn bind(secret: &str, host: &str) -> Binding {
    Binding::new(secret.parse().unwrap(), host.parse().unwrap(), BindingParts::default()).unwrap()
}

/// Nobody hears it.
pub(crate) fn deaf() -> Tell {
    tokio::sync::mpsc::unbounded_channel().0
}

pub(crate) fn box_id() -> BoxId {
    BoxId::from_random([3; 20])
}

/// The state of the server: what it answers, and what it was asked.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) sealed: bool,
    /// Something else stands where it was, and knows no path.
    pub(crate) elsewhere: bool,
    pub(crate) leases: BTreeMap<String, u32>,
    pub(crate) minted: u32,
    /// Life of a lease in seconds; 0 means 100.
    pub(crate) life: u64,
    pub(crate) asked: Vec<String>,
    /// Where it answers as if nothing were elsewhere.
    pub(crate) namespace: Option<&'static str>,
}

/// A connection, with TLS or without.
trait Line: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Line for T {}

pub(crate) struct Vault {
    pub(crate) address: String,
    pub(crate) state: Arc<Mutex<State>>,
    /// While somebody holds it, what was asked for a secret is done but not answered.
    pub(crate) tongue: Arc<tokio::sync::Mutex<()>>,
    /// Rings when something was done.
    pub(crate) done: Arc<Notify>,
}

impl Vault {
    /// Serves the KV engine at `secret`, a database engine at `database`, and the calls for leases.
    pub(crate) async fn start() -> Self {
        Self::behind("http", None).await
    }

    /// The same over TLS, for the address that it has; and the authority that says so.
    pub(crate) async fn secure() -> (Self, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let own =
            rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(
            tokio_rustls::rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![own.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .unwrap();
        let body = base64::engine::general_purpose::STANDARD.encode(own.der());
        let authority = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        (Self::behind("https", Some(TlsAcceptor::from(Arc::new(config)))).await, authority)
    }

    async fn behind(scheme: &str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("{scheme}://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let (tongue, done) = (Arc::<tokio::sync::Mutex<()>>::default(), Arc::new(Notify::new()));
        let (shared, held, bell) = (Arc::clone(&state), Arc::clone(&tongue), Arc::clone(&done));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, held, bell) = (Arc::clone(&shared), Arc::clone(&held), Arc::clone(&bell));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (state, held, bell) = (Arc::clone(&state), Arc::clone(&held), Arc::clone(&bell));
                    async move {
                        let (parts, body) = request.into_parts();
                        let body = body.collect().await?.to_bytes();
                        let token =
                            parts.headers.get("x-vault-token").map(|t| t.to_str().unwrap().to_owned());
                        let line = format!("{} {}", parts.method, parts.uri.path());
                        let namespace = parts.headers.get("x-vault-namespace").map(|n| n.to_str().unwrap());
                        let (status, answer) = {
                            let mut state = state.lock().unwrap();
                            let here = state.namespace == namespace;
                            match here {
                                true => reply(&mut state, &line, token.as_deref(), &body),
                                false => (404, json!({ "errors": ["no handler for route"] })),
                            }
                        };
                        bell.notify_one();
                        if line.starts_with("GET ") {
                            drop(held.lock().await);
                        }
                        let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
                        *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap();
                        Ok::<_, hyper::Error>(response)
                    }
                });
                let tls = tls.clone();
                tokio::spawn(async move {
                    let line: Box<dyn Line> = match tls {
                        None => Box::new(stream),
                        // Whoever does not believe it goes away.
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => Box::new(stream),
                            Err(_) => return,
                        },
                    };
                    let serving = hyper::server::conn::http1::Builder::new();
                    serving.serve_connection(TokioIo::new(line), service).await.ok();
                });
            }
        });
        Self { address, state, tongue, done }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.state.lock().unwrap().asked.clone()
    }
}

fn reply(state: &mut State, line: &str, token: Option<&str>, body: &Bytes) -> (u16, Value) {
    state.asked.push(line.to_owned());
    if state.elsewhere {
        return (404, json!({ "errors": [] }));
    }
    if state.sealed {
        return (503, json!({ "errors": ["Vault is sealed"] }));
    }
    if token != Some("s.root-token") {
        return (403, json!({ "errors": ["permission denied"] }));
    }
    let life = if state.life == 0 { 100 } else { state.life };
    let lease = || serde_json::from_slice::<Value>(body).unwrap()["lease_id"].as_str().unwrap().to_owned();
    match line {
        "GET /v1/secret/data/api" => (
            200,
            json!({ "request_id": "1", "lease_id": "", "renewable": false, "lease_duration": 0,
                    "data": { "data": { "key": "kv-secret-value-1" }, "metadata": { "version": 3 } } }),
        ),
        "GET /v1/database/creds/app" => {
            state.minted += 1;
            let id = format!("database/creds/app/{}", state.minted);
            state.leases.insert(id.clone(), 0);
            let data = json!({ "username": "v-app", "password": format!("made-password-{}", state.minted) });
            (200, json!({ "lease_id": id, "renewable": true, "lease_duration": life, "data": data }))
        }
        "PUT /v1/sys/leases/renew" => match state.leases.get_mut(&lease()) {
            Some(renewed) => {
                *renewed += 1;
                (200, json!({ "lease_id": lease(), "renewable": true, "lease_duration": life }))
            }
            None => (400, json!({ "errors": ["invalid lease"] })),
        },
        "PUT /v1/sys/leases/revoke" => match state.leases.remove(&lease()) {
            Some(_) => (200, json!({})),
            None => (400, json!({ "errors": ["invalid lease"] })),
        },
        _ => (404, json!({ "errors": [] })),
    }
}
