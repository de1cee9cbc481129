//! A client of E2B's wire without an SDK: whatever headers and bytes a test wants.

use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::Bytes;
use serde_json::{Value, json};

use crate::caller::{Caller, PATIENCE};
use crate::rig::Daemon;

/// What came back.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) bytes: Bytes,
    pub(super) body: Value,
}

impl Heard {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or("")
    }
}

/// A tenant.
pub(super) struct Client {
    pub(super) door: Caller,
    key: String,
}

/// A sandbox and what its owner needs to use it.
pub(super) struct Sandbox<'a> {
    pub(super) client: &'a Client,
    pub(super) id: String,
    pub(super) token: String,
}

impl Client {
    pub(super) fn of(daemon: &Daemon, name: &str) -> Self {
        let key = daemon.keys().create(name.parse().unwrap(), None).unwrap();
        Self { door: daemon.over_tcp(None), key: key.show_once().to_owned() }
    }

    pub(super) async fn raw(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Heard {
        let talk = async {
            let body = Bytes::copy_from_slice(body);
            let (parts, body) = self.door.open(method, path, headers, body).await.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            Heard { status: parts.status.as_u16(), headers: parts.headers, bytes, body }
        };
        tokio::time::timeout(PATIENCE, talk).await.unwrap()
    }

    /// A question to the control plane, with the key.
    pub(super) async fn ask(&self, method: &str, path: &str, body: Value) -> Heard {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.raw(method, path, &[("x-api-key", &self.key)], text.as_bytes()).await
    }

    pub(super) async fn make(&self, more: Value) -> Sandbox<'_> {
        let mut asked = json!({ "templateID": "base", "timeout": 600 });
        asked.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let made = self.ask("POST", "/v2/sandboxes", asked).await;
        assert_eq!(made.status, 201, "{made:?}");
        let text = |name: &str| made.body[name].as_str().unwrap().to_owned();
        Sandbox { client: self, id: text("sandboxID"), token: text("envdAccessToken") }
    }
}

impl Sandbox<'_> {
    pub(super) fn headers(&self) -> [(&str, &str); 3] {
        [("e2b-sandbox-id", &self.id), ("e2b-sandbox-port", "49983"), ("x-access-token", &self.token)]
    }

    /// A question to what is inside.
    pub(super) async fn inside(&self, method: &str, path: &str, more: &[(&str, &str)], body: &[u8]) -> Heard {
        let headers: Vec<(&str, &str)> = self.headers().into_iter().chain(more.iter().copied()).collect();
        self.client.raw(method, path, &headers, body).await
    }

    /// A unary call as JSON.
    pub(super) async fn call(&self, procedure: &str, body: Value) -> Heard {
        let json = [("content-type", "application/json")];
        self.inside("POST", &format!("/{procedure}"), &json, body.to_string().as_bytes()).await
    }

    /// A call that streams, as JSON: the messages, and the last frame.
    pub(super) async fn stream(&self, procedure: &str, body: Value) -> (Vec<Value>, Value) {
        let kind = [("content-type", "application/connect+json")];
        let message = frame(0, body.to_string().as_bytes());
        let heard = self.inside("POST", &format!("/{procedure}"), &kind, &message).await;
        assert_eq!(
            (heard.status, heard.header("content-type")),
            (200, "application/connect+json"),
            "{heard:?}"
        );
        let mut all = frames(&heard.bytes);
        let (flags, last) = all.pop().unwrap();
        assert_eq!(flags, 2, "{all:?}");
        let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap();
        (all.iter().map(|(_, bytes)| read(bytes)).collect(), read(&last))
    }
}

pub(super) fn frame(flags: u8, message: &[u8]) -> Vec<u8> {
    let mut frame = vec![flags];
    frame.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    frame.extend(message);
    frame
}

pub(super) fn frames(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let length = usize::try_from(u32::from_be_bytes(bytes[1..5].try_into().unwrap())).unwrap();
        all.push((bytes[0], bytes[5..5 + length].to_vec()));
        bytes = &bytes[5 + length..];
    }
    all
}
