//! Servers inside a sandbox, from outside: by the name of a host or by headers, with HTTP and with WebSockets.

use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::wire::{Client, Heard, Sandbox, frame};
use crate::caller::PATIENCE;
use crate::rig::{Daemon, skip};

/// Answers each request with what it was, in JSON; `/switch` becomes a line that gives back what it gets, in capitals;
/// `/forever` has no end; `/break` is no HTTP.
const SERVER: &str = r#"
import http.server, json, sys, time
class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        if self.path == "/switch":
            self.send_response(101); self.send_header("Connection", "Upgrade"); self.send_header("Upgrade", self.headers["Upgrade"])
            self.end_headers(); self.wfile.flush()
            while line := self.rfile.readline(): self.wfile.write(line.upper()); self.wfile.flush()
            self.close_connection = True
            return
        if self.path == "/break":
            self.wfile.write(b"\0" * 4096); self.wfile.flush(); self.close_connection = True
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == "/long": answer = b"x" * 5_000_000
        else: answer = json.dumps({"method": self.command, "path": self.path, "body": body.decode(), "headers": dict(self.headers)}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(answer))); self.send_header("X-Server", "inside")
        self.end_headers(); self.wfile.write(answer)
    do_POST = do_GET
server = http.server.ThreadingHTTPServer(("127.0.0.1", 8000), Server)
print("ready", flush=True)
server.serve_forever()
"#;

/// Starts the server and waits until it listens. The stream that holds it is given back.
async fn serve(sandbox: &Sandbox<'_>) -> hyper::Response<hyper::body::Incoming> {
    let start = json!({ "process": { "cmd": "python3", "args": ["-c", SERVER] }, "stdin": false });
    let kind = ("content-type", "application/connect+json");
    let headers: Vec<(&str, &str)> = sandbox.headers().into_iter().chain([kind]).collect();
    let message = Bytes::from(frame(0, start.to_string().as_bytes()));
    let mut response = sandbox.client.door.open("POST", "/process.Process/Start", &headers, message).await;
    let ready = async {
        let mut seen = Vec::new();
        // "ready\n" in base64.
        while !seen.windows(8).any(|window| window == b"cmVhZHkK") {
            let piece = http_body_util::BodyExt::frame(response.body_mut()).await.unwrap().unwrap();
            seen.extend(piece.into_data().unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, ready).await.unwrap();
    response
}

async fn at(
    sandbox: &Sandbox<'_>,
    port: u16,
    method: &str,
    path: &str,
    more: &[(&str, &str)],
    body: &[u8],
) -> Heard {
    let (id, port) = (sandbox.id.as_str(), port.to_string());
    let named = [("e2b-sandbox-id", id), ("e2b-sandbox-port", port.as_str())];
    let headers: Vec<(&str, &str)> = named.into_iter().chain(more.iter().copied()).collect();
    sandbox.client.raw(method, path, &headers, body).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_inside_is_reached_and_sees_no_key() {
    let Some(daemon) = Daemon::start("e2b::a_server_inside").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    let closed = at(&sandbox, 8000, "GET", "/", &[], b"").await;
    assert_eq!((closed.status, closed.message()), (502, "The sandbox is running but port is not open"));
    assert_eq!(closed.body["port"], 8000);
    let _server = serve(&sandbox).await;
    let secrets =
        [("x-access-token", sandbox.token.as_str()), ("authorization", "Bearer bbx_x"), ("x-own", "kept")];
    let heard = at(&sandbox, 8000, "POST", "/a/b?c=d", &secrets, b"sent").await;
    assert_eq!((heard.status, heard.header("x-server")), (200, "inside"), "{heard:?}");
    assert_eq!(
        (&heard.body["method"], &heard.body["path"], &heard.body["body"]),
        (&json!("POST"), &json!("/a/b?c=d"), &json!("sent"))
    );
    let names: Vec<String> =
        heard.body["headers"].as_object().unwrap().keys().map(|name| name.to_lowercase()).collect();
    assert!(names.contains(&"x-own".to_owned()), "{names:?}");
    for ours in ["x-access-token", "authorization", "e2b-sandbox-id", "e2b-sandbox-port"] {
        assert!(!names.contains(&ours.to_owned()), "{names:?}");
    }
    assert_eq!(at(&sandbox, 8000, "GET", "/long", &[], b"").await.bytes.len(), 5_000_000);
    assert_eq!(at(&sandbox, 8000, "GET", "/break", &[], b"").await.status, 502);
    // Also from a page, which the daemon's own API does not take.
    let page = [("origin", "http://8000-x.sbx.localhost")];
    assert_eq!(at(&sandbox, 8000, "GET", "/", &page, b"").await.status, 200);
    for port in [8001, 0] {
        assert_eq!(at(&sandbox, port, "GET", "/", &[], b"").await.status, 502, "{port}");
    }
    // What carries is no process of the owner's.
    let list = sandbox.call("process.Process/List", json!({})).await;
    assert_eq!(list.body["processes"].as_array().unwrap().len(), 1, "{list:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_that_becomes_something_else_is_carried_both_ways() {
    let Some(daemon) = Daemon::start("e2b::a_line_becomes").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    let _server = serve(&sandbox).await;
    let mut line = client.door.connect().await;
    let id = &sandbox.id;
    let head = format!(
        "GET /switch HTTP/1.1\r\nHost: 8000-{id}.sbx.localhost:7080\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    line.write_all(head.as_bytes()).await.unwrap();
    let talk = async {
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            heard.push(line.read_u8().await.unwrap());
        }
        let heard = String::from_utf8(heard).unwrap();
        assert!(
            heard.starts_with("HTTP/1.1 101") && heard.to_lowercase().contains("upgrade: websocket"),
            "{heard}"
        );
        for word in ["one\n", "two\n"] {
            line.write_all(word.as_bytes()).await.unwrap();
            let mut back = [0; 4];
            line.read_exact(&mut back).await.unwrap();
            assert_eq!(std::str::from_utf8(&back).unwrap(), word.to_uppercase());
        }
        // With the sandbox goes the line.
        assert_eq!(client.ask("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.status, 204);
        let mut rest = Vec::new();
        line.read_to_end(&mut rest).await.ok();
    };
    tokio::time::timeout(PATIENCE, talk).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ports_that_are_closed_need_their_token_and_wake_only_with_it() {
    const NAME: &str = "e2b::ports_that_are_closed";
    let Some(daemon) = Daemon::start(NAME).await else { return };
    let client = Client::of(&daemon, "ann");
    let asked = json!({ "templateID": "base", "timeout": 600, "autoResume": { "enabled": true },
        "network": { "allowPublicTraffic": false } });
    let made = client.ask("POST", "/v2/sandboxes", asked).await;
    let text = |name: &str| made.body[name].as_str().unwrap().to_owned();
    let sandbox = Sandbox { client: &client, id: text("sandboxID"), token: text("envdAccessToken") };
    let traffic = text("trafficAccessToken");
    let _server = serve(&sandbox).await;
    let right = [("e2b-traffic-access-token", traffic.as_str())];
    let wrong = [("e2b-traffic-access-token", "wrong")];
    let ask = async |more: &[(&str, &str)]| at(&sandbox, 8000, "GET", "/", more, b"").await;
    assert_eq!((ask(&[]).await.status, ask(&wrong).await.status), (403, 403));
    let heard = ask(&right).await;
    assert_eq!(heard.status, 200);
    assert!(!heard.body.to_string().contains(&traffic), "{heard:?}");
    let path = format!("/sandboxes/{}", sandbox.id);
    if client.ask("POST", &format!("{path}/pause"), Value::Null).await.status == 500 {
        skip::<()>(NAME, "this host freezes no box");
        return;
    }
    let state = async || client.ask("GET", &path, Value::Null).await.body["state"].clone();
    assert_eq!((ask(&wrong).await.status, state().await), (403, json!("paused")));
    assert_eq!((ask(&right).await.status, state().await), (200, json!("running")));
}
