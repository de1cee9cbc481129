//! What is inside a sandbox over plain HTTP: who is let in, where a request leads, uploads that are wrong.

use serde_json::json;

use super::wire::Client;
use crate::rig::Daemon;

#[tokio::test(flavor = "multi_thread")]
async fn only_the_token_opens_files_and_runs_code() {
    let Some(daemon) = Daemon::start("e2b::only_the_token").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    let id = sandbox.id.as_str();
    let to = |port: &'static str| [("e2b-sandbox-id", id), ("e2b-sandbox-port", port)];
    assert_eq!(client.raw("GET", "/health", &to("49983"), b"").await.status, 204);
    let no = "unauthorized access, please provide a valid access token or method signing if supported";
    for path in ["/envs", "/metrics", "/files/compose", "/nothing"] {
        let heard = client.raw("GET", path, &to("49983"), b"").await;
        assert_eq!((heard.status, heard.message()), (401, no), "{path}");
    }
    let wrong = [to("49983").as_slice(), &[("x-access-token", "wrong")]].concat();
    assert_eq!(client.raw("GET", "/files?path=/etc/passwd", &wrong, b"").await.status, 401);
    let unsigned = client.raw("GET", "/files?path=/etc/passwd", &to("49983"), b"").await;
    assert_eq!((unsigned.status, unsigned.message()), (401, "missing signature query parameter"));
    let forged = client.raw("GET", "/files?path=/etc/passwd&signature=v1_x", &[], b"").await;
    assert_eq!((forged.status, forged.message()), (401, "invalid signature"));
    for internal in ["/init", "/freeze", "/fsthaw", "/collapse"] {
        assert_eq!(sandbox.inside("POST", internal, &[], b"{}").await.status, 404, "{internal}");
    }
    let closed = client.raw("GET", "/", &to("8080"), b"").await;
    assert_eq!(closed.status, 502);
    let words = json!({ "code": 502, "message": "The sandbox is running but port is not open", "port": 8080, "sandboxId": id });
    assert_eq!(closed.body, words);
    // The code interpreter is there without a token too, and runs nothing without one.
    assert_eq!(client.raw("GET", "/health", &to("49999"), b"").await.status, 200);
    let untold = client.raw("POST", "/execute", &to("49999"), b"{\"code\":\"1\"}").await;
    assert_eq!(untold.status, 401);
    let half = client.raw("GET", "/health", &[("e2b-sandbox-id", id)], b"").await;
    assert_eq!(half.status, 400, "{half:?}");
    assert_eq!(client.raw("GET", "/files?path=a", &[], b"").await.status, 400);
    let unknown = [("e2b-sandbox-id", "nosuchsandbox"), ("e2b-sandbox-port", "49983")];
    let gone = client.raw("GET", "/health", &unknown, b"").await;
    let words = json!({ "code": 502, "message": "The sandbox was not found", "sandboxId": "nosuchsandbox" });
    assert_eq!((gone.status, gone.body.clone(), gone.header("should-retry")), (502, words, "false"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_name_leads_to_a_sandbox_as_headers_do() {
    let Some(daemon) = Daemon::start("e2b::a_host_name").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    for (port, expected) in [("49983", "204"), ("80", "502")] {
        let host = format!("{port}-{}.box.test", sandbox.id);
        let asked = format!("GET /health HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let heard = client.door.raw(asked.as_bytes()).await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {expected}")), "{heard}");
    }
    let many = format!("GET /sandboxes HTTP/1.1\r\nhost: h\r\n{}\r\n", "x-more: 1\r\n".repeat(100));
    let heard = client.door.raw(many.as_bytes()).await;
    assert!(heard.starts_with("HTTP/1.1 431"), "{heard}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_wrong_is_refused_and_leaves_nothing() {
    let Some(daemon) = Daemon::start("e2b::an_upload_that_is_wrong").await else { return };
    let client = Client::of(&daemon, "ann");
    let sandbox = client.make(json!({})).await;
    let octets = ("content-type", "application/octet-stream");
    let form = ("content-type", "multipart/form-data; boundary=XX");
    let part = |name: &str, file: &str| {
        format!(
            "--XX\r\ncontent-disposition: form-data; name=\"{name}\"; filename=\"{file}\"\r\n\r\nbody\r\n"
        )
    };
    let twice = format!("{}{}--XX--\r\n", part("file", "same"), part("file", "./same"));
    let other = format!("{}--XX--\r\n", part("other", "name"));
    let cut = part("file", "half");
    for (path, headers, body, words) in [
        ("/files?path=a", vec![("content-type", "text/plain")], "x", "content type"),
        ("/files?path=a", vec![], "x", "content type"),
        ("/files", vec![octets], "x", "path is missing"),
        ("/files?path=packed", vec![octets, ("content-encoding", "gzip")], "not gzip", "not gzip"),
        ("/files?path=a", vec![octets, ("content-encoding", "br")], "x", "Content-Encoding"),
        ("/files?path=~other/a", vec![octets], "x", "another user's home"),
        ("/files", vec![form], twice.as_str(), "comes twice"),
        ("/files", vec![form], other.as_str(), "no part named `file`"),
        ("/files", vec![form], cut.as_str(), "broke off"),
        ("/files", vec![("content-type", "multipart/form-data")], "x", "boundary"),
    ] {
        let heard = sandbox.inside("POST", path, &headers, body.as_bytes()).await;
        assert_eq!(heard.status, 400, "{path} {headers:?} {heard:?}");
        assert!(heard.message().contains(words), "{path} {headers:?} {heard:?}");
    }
    for never in ["packed", "half"] {
        let heard = sandbox.inside("GET", &format!("/files?path={never}"), &[], b"").await;
        let words = format!("path '/home/user/{never}' does not exist");
        assert_eq!((heard.status, heard.message()), (404, words.as_str()));
    }
    let user = sandbox.inside("GET", "/files?path=a&username=root", &[], b"").await;
    assert_eq!((user.status, user.message()), (401, "error looking up user 'root': user: unknown user root"));
    let good = sandbox.inside("POST", "/files?path=empty", &[octets], b"").await;
    assert_eq!(good.body, json!([{ "path": "/home/user/empty", "name": "empty", "type": "file" }]));
    let read = sandbox.inside("GET", "/files?path=empty", &[], b"").await;
    assert_eq!((read.status, read.bytes.len()), (200, 0));
    assert_eq!(read.header("vary"), "Accept-Encoding");
    assert_eq!(read.header("content-disposition"), "inline; filename=\"empty\"");
}
