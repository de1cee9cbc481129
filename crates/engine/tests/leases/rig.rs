//! A room for files, bindings, and a server with Vault's wire.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use blastbox_engine::leases::Tell;
use blastbox_policy::{Binding, BindingParts};
use blastbox_wire::BoxId;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;

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
}

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
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
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
                        let (status, answer) =
                            reply(&mut state.lock().unwrap(), &line, token.as_deref(), &body);
                        bell.notify_one();
                        if line.starts_with("GET ") {
                            drop(held.lock().await);
                        }
                        let mut response = Response::new(Full::new(Bytes::from(answer.to_string())));
                        *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap();
                        Ok::<_, hyper::Error>(response)
                    }
                });
                tokio::spawn(
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service),
                );
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
