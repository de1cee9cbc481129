//! A caller: plain HTTP/1.1, one connection per question, and raw bytes for whoever does not follow the rules.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Nothing here takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

#[derive(Clone)]
enum Place {
    Socket(PathBuf),
    Tcp(SocketAddr),
}

#[derive(Clone)]
pub(crate) struct Caller {
    place: Place,
    key: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: hyper::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("")
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl Caller {
    pub(crate) fn socket(path: PathBuf) -> Self {
        Self { place: Place::Socket(path), key: None }
    }

    pub(crate) fn tcp(address: SocketAddr, key: Option<&str>) -> Self {
        Self { place: Place::Tcp(address), key: key.map(ToOwned::to_owned) }
    }

    pub(crate) async fn connect(&self) -> Box<dyn Stream> {
        match &self.place {
            Place::Socket(path) => Box::new(UnixStream::connect(path).await.unwrap()),
            Place::Tcp(address) => Box::new(TcpStream::connect(address).await.unwrap()),
        }
    }

    pub(crate) async fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Response<Incoming> {
        let (mut line, connection) = http1::handshake(TokioIo::new(self.connect().await)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        let mut request = Request::builder().method(method).uri(path).header("host", "blastbox");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        line.send_request(request.body(Full::new(body)).unwrap()).await.unwrap()
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Answer {
        let talk = async {
            let response = self.open(method, path, &[], body.into()).await;
            let (parts, body) = response.into_parts();
            let bytes = body.collect().await.unwrap().to_bytes();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let body = serde_json::from_slice(&bytes).unwrap_or(Value::String(text));
            Answer { status: parts.status.as_u16(), headers: parts.headers, body }
        };
        tokio::time::timeout(PATIENCE, talk).await.unwrap()
    }

    /// An answer as bytes.
    pub(crate) async fn bytes(&self, path: &str) -> (u16, Bytes) {
        let talk = async {
            let response = self.open("GET", path, &[], Bytes::new()).await;
            let status = response.status().as_u16();
            (status, response.into_body().collect().await.unwrap().to_bytes())
        };
        tokio::time::timeout(PATIENCE, talk).await.unwrap()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "").await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "").await
    }

    /// A box that is there: its path.
    pub(crate) async fn create(&self, body: Value) -> String {
        let answer = self.post("/v1/boxes", body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        format!("/v1/boxes/{}", answer.body["id"].as_str().unwrap())
    }

    /// A command in a box: its path.
    pub(crate) async fn exec(&self, of: &str, body: Value) -> String {
        let answer = self.post(&format!("{of}/execs"), body).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        format!("{of}/execs/{}", answer.body["exec"])
    }

    pub(crate) async fn shell(&self, of: &str, script: &str) -> String {
        self.exec(of, json!({ "command": ["/bin/sh", "-c", script] })).await
    }

    /// A stream of events from after a place, which has begun.
    pub(crate) async fn listen(&self, path: &str, after: Option<u64>) -> Response<Incoming> {
        let after = after.map(|id| id.to_string());
        let headers: Vec<(&str, &str)> = after.iter().map(|id| ("last-event-id", id.as_str())).collect();
        let response = self.open("GET", path, &headers, Bytes::new()).await;
        assert_eq!(response.status(), 200);
        response
    }

    /// Every event from after a place, to the end of the stream.
    pub(crate) async fn events(&self, path: &str, after: Option<u64>) -> Vec<Event> {
        heard(self.listen(path, after).await).await
    }

    /// What a command printed, and how it ended.
    pub(crate) async fn ended(&self, exec: &str) -> (String, Value) {
        let events = self.events(&format!("{exec}/events"), None).await;
        let last = events.last().unwrap();
        assert_eq!(last.name, "ended", "{events:?}");
        (String::from_utf8(output(&events)).unwrap(), last.data.clone())
    }

    /// Sends bytes as they are, and reads until the daemon closes or has said enough.
    pub(crate) async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        // A daemon that has heard enough may close before everything is sent.
        stream.write_all(bytes).await.ok();
        let mut heard = Vec::new();
        tokio::time::timeout(PATIENCE, stream.read_to_end(&mut heard)).await.unwrap().ok();
        String::from_utf8_lossy(&heard).into_owned()
    }
}

/// Every event of a stream, to its end.
pub(crate) async fn heard(response: Response<Incoming>) -> Vec<Event> {
    let all = tokio::time::timeout(PATIENCE, response.into_body().collect()).await.unwrap();
    let text = String::from_utf8(all.unwrap().to_bytes().to_vec()).unwrap();
    text.split("\n\n").filter(|block| !block.is_empty() && !block.starts_with(':')).map(event).collect()
}

fn event(block: &str) -> Event {
    let field = |name: &str| {
        let prefix = format!("{name}: ");
        block.lines().find_map(|line| line.strip_prefix(prefix.as_str())).unwrap_or_default().to_owned()
    };
    let data = serde_json::from_str(&field("data")).unwrap();
    Event { id: field("id").parse().unwrap_or(0), name: field("event"), data }
}

/// Everything that was printed, both streams together.
pub(crate) fn output(events: &[Event]) -> Vec<u8> {
    let outputs = events.iter().filter(|event| event.name == "output");
    outputs.flat_map(|event| STANDARD.decode(event.data["base64"].as_str().unwrap()).unwrap()).collect()
}
