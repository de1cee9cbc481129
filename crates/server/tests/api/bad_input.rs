//! Bad input: a 4xx with a stable code or a closed connection, and the daemon goes on.

use std::time::{Duration, Instant};

use blastbox_engine::keeper::KeeperConfig;
use blastbox_server::Patience;
use hyper::body::Bytes;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::caller::PATIENCE;
use crate::rig::{CONNECTIONS, Daemon, HEAD, ORIGIN, PER_TENANT};

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_nonsense_has_its_code() {
    let Some(daemon) = Daemon::start("each_kind_of_nonsense_has_its_code").await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let long = format!("/v1/boxes/{}", "a".repeat(5000));
    let execs = format!("{made}/execs");
    for (method, path, body, status, code) in [
        ("POST", "/v1/boxes", "{\"profile\":", 400, "bad_json"),
        ("POST", "/v1/boxes", "\u{0}\u{1}", 400, "bad_json"),
        ("POST", "/v1/boxes", "[1]", 422, "bad_field"),
        ("POST", "/v1/boxes", "{\"profil\":\"low\"}", 422, "bad_field"),
        ("POST", "/v1/boxes", "{\"profile\":\"low\",\"threat\":\"low\"}", 422, "bad_field"),
        ("POST", "/v1/boxes", "{\"policy\":\"threat = 5\"}", 422, "bad_policy"),
        ("POST", "/v1/boxes", "{\"limits\":{\"memory\":\"1TiB\"}}", 429, "quota_spent"),
        ("POST", "/v1/boxes", "{\"image\":\"/no/such/image\"}", 422, "bad_image"),
        ("POST", "/v1/boxes", "{\"workspace\":{\"path\":\"/\"}}", 422, "bad_workspace"),
        ("POST", "/v1/boxes", "{\"workspace\":{\"path\":\"../x\"}}", 422, "bad_workspace"),
        ("POST", "/v1/boxes", "{\"profile\":\"strict\"}", 422, "gap_not_accepted"),
        ("POST", execs.as_str(), "{\"command\":[]}", 422, "bad_command"),
        ("POST", execs.as_str(), "{\"command\":[\"a\\u0000\"]}", 422, "bad_command"),
        ("POST", execs.as_str(), "{}", 422, "bad_field"),
        ("GET", "/v1/boxes?limit=0", "", 400, "bad_query"),
        ("GET", "/v1/boxes?cursor=???", "", 400, "bad_query"),
        ("GET", "/v1/boxes?page=2", "", 400, "bad_query"),
        ("GET", "/v1/boxes/..%2f..%2fetc", "", 404, "not_found"),
        ("GET", "/v1/boxes/bx_AAAAAAAAAAAAAAAAAAAA", "", 404, "not_found"),
        ("GET", "/v1/boxes/bx_%00aaaaaaaaaaaaaaaaaaa", "", 404, "not_found"),
        ("GET", "/v1/boxes/%ff", "", 404, "not_found"),
        ("GET", long.as_str(), "", 404, "not_found"),
        ("GET", "/v2/boxes", "", 404, "no_such_route"),
        ("GET", "/", "", 404, "no_such_route"),
        ("PUT", "/v1/boxes", "", 405, "method_not_allowed"),
        ("BREW", "/healthz", "", 405, "method_not_allowed"),
    ] {
        let answer = me.send(method, path, body.to_owned()).await;
        assert_eq!((answer.status, answer.code()), (status, code), "{method} {path} {body}: {answer:?}");
        assert!(answer.body["error"]["message"].is_string(), "{answer:?}");
    }
    for path in ["/execs/99/events", "/execs/x/events", "/execs/-1/events", "/execs/4294967296/events"] {
        assert_eq!(me.get(&format!("{made}{path}")).await.status, 404, "{path}");
    }
    assert!(me.send("PUT", "/v1/boxes", "").await.headers["allow"].to_str().unwrap().contains("GET"));
    assert_eq!(me.get("/healthz").await.status, 200);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_big_is_refused_before_it_is_kept() {
    let Some(daemon) = Daemon::start("what_is_too_big_is_refused_before_it_is_kept").await else { return };
    let me = daemon.local();
    let big = format!("{{\"policy\":\"{}\"}}", "#".repeat(9_000_000));
    assert_eq!(
        me.raw_status(&post("/v1/boxes", &format!("Content-Length: {}\r\n", big.len()), &big)).await,
        413
    );
    let chunked = format!("{:x}\r\n{big}\r\n0\r\n\r\n", big.len());
    assert_eq!(me.raw_status(&post("/v1/boxes", "Transfer-Encoding: chunked\r\n", &chunked)).await, 413);
    let header = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "a".repeat(10_000_000));
    assert_eq!(me.raw_status(&header).await, 431);
    let many = format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(1000));
    assert_eq!(me.raw_status(&many).await, 431);
    let line = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(10_000_000));
    assert!([414, 431].contains(&me.raw_status(&line).await));
    for nonsense in ["\u{0}\u{1}\u{2}\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n"] {
        assert_eq!(me.raw_status(nonsense).await, 400, "{nonsense:?}");
    }
    assert_eq!(me.raw(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, "", "HTTP/2 is not spoken here");
    // Two lengths that differ are how requests are smuggled past whoever stands in front.
    let twice = post("/v1/boxes", "Content-Length: 2\r\nContent-Length: 3\r\n", "{}");
    assert_eq!(me.raw_status(&twice).await, 400);
    assert_eq!(me.get("/healthz").await.status, 200);
    daemon.stop().await;
}

fn post(path: &str, headers: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n{body}")
}

impl crate::caller::Caller {
    async fn raw_status(&self, bytes: &str) -> u16 {
        let heard = self.raw(bytes.as_bytes()).await;
        let status = heard.split(' ').nth(1).and_then(|word| word.parse().ok());
        status.unwrap_or_else(|| panic!("{heard:?}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_for_ever_over_a_head_is_shown_out() {
    let Some(daemon) = Daemon::start("whoever_takes_for_ever_over_a_head_is_shown_out").await else { return };
    let me = daemon.local();
    let begun = Instant::now();
    let mut slow = me.connect().await;
    let mut room = [0; 64];
    // A byte now and then does not count as progress.
    let shown_out = loop {
        if slow.write_all(b"G").await.is_err() {
            break begun.elapsed();
        }
        match tokio::time::timeout(Duration::from_millis(50), slow.read(&mut room)).await {
            Ok(Ok(0) | Err(_)) => break begun.elapsed(),
            Ok(Ok(_)) | Err(_) => assert!(begun.elapsed() < PATIENCE, "it is let talk for ever"),
        }
    };
    assert!(shown_out >= HEAD, "{shown_out:?}");
    // One that says nothing at all, too.
    assert_eq!(me.raw(b"").await, "");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_says_nothing_is_bounded_and_its_seats_come_back() {
    let name = "a_crowd_that_says_nothing_is_bounded_and_its_seats_come_back";
    // Nobody is shown out for being slow here, however slow this machine is.
    let patience = Patience { head: PATIENCE * 4, connections: CONNECTIONS, per_tenant: CONNECTIONS };
    let Some(daemon) = Daemon::patient(name, KeeperConfig::default(), patience).await else { return };
    let me = daemon.local();
    let mut crowd = Vec::new();
    for _ in 0..CONNECTIONS * 3 {
        crowd.push(me.connect().await);
    }
    // They are let in in the order in which they came, and those without a seat are shown out at once.
    for stream in crowd.iter_mut().skip(CONNECTIONS) {
        let read = tokio::time::timeout(PATIENCE, stream.read(&mut [0; 1])).await.unwrap();
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    drop(crowd);
    let back = async {
        while me.raw(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_with_many_connections_keeps_nobody_else_out() {
    let name = "a_tenant_with_many_connections_keeps_nobody_else_out";
    let Some(daemon) = Daemon::start(name).await else { return };
    let (many, other) = (daemon.tenant("many"), daemon.tenant("other"));
    let mut streams = Vec::new();
    for _ in 0..PER_TENANT {
        streams.push(many.listen("/v1/events", None).await);
    }
    let more = many.get("/v1/boxes").await;
    assert_eq!((more.status, more.code()), (429, "too_many_connections"), "{more:?}");
    assert!(more.headers.contains_key("retry-after"));
    assert_eq!(other.get("/v1/boxes").await.status, 200);
    drop(streams);
    let back = async {
        while many.get("/v1/boxes").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_a_tenant_hold_so_much_memory_together_whichever_face_reads_them() {
    const LONGEST: usize = 8 * 1024 * 1024;
    let name = "bodies_of_a_tenant_hold_so_much_memory_together_whichever_face_reads_them";
    let Some(daemon) = Daemon::start(name).await else { return };
    let key = daemon.keys().create("many".parse().unwrap(), None).unwrap();
    let (many, other) = (daemon.over_tcp(Some(key.show_once())), daemon.tenant("other"));
    let mut held = Vec::new();
    for _ in 0..8 {
        let mut stream = many.connect().await;
        let head = format!(
            "POST /v1/run HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: {LONGEST}\r\n\r\n",
            key.show_once()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // All but its last byte.
        stream.write_all(&vec![b' '; LONGEST - 1]).await.unwrap();
        held.push(stream);
    }
    let body = " ".repeat(1_000);
    let refused = async {
        while many.send("POST", "/v1/run", body.clone()).await.status != 429 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.unwrap();
    for path in ["/v1/run", "/v1/boxes", "/mcp"] {
        let no = many.send("POST", path, body.clone()).await;
        assert_eq!((no.status, no.code()), (429, "request_memory_spent"), "{path}: {no:?}");
        assert!(no.headers.contains_key("retry-after"));
    }
    let no = many.send("POST", "/sandboxes", body.clone()).await;
    assert_eq!((no.status, &no.body["error_code"]), (429, &json!("request_memory_spent")), "{no:?}");
    // Whoever sends nothing that has to be held is served, and so is everybody else.
    assert_eq!(many.get("/v1/boxes").await.status, 200);
    assert_ne!(other.send("POST", "/v1/run", body.clone()).await.status, 429);
    drop(held);
    let back = async {
        while many.send("POST", "/v1/run", body.clone()).await.status == 429 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, back).await.unwrap();
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_page_is_not_spoken_with() {
    let Some(daemon) = Daemon::start("a_web_page_is_not_spoken_with").await else { return };
    let key = daemon.keys().create("page".parse().unwrap(), None).unwrap();
    for me in [daemon.local(), daemon.over_tcp(Some(key.show_once()))] {
        for origin in ["https://evil.example", "http://127.0.0.1:7080", "null"] {
            let answer = me.open("POST", "/v1/boxes", &[("origin", origin)], Bytes::new()).await;
            assert_eq!(answer.status(), 403, "{origin}");
        }
        // One that the operator has named may.
        assert_eq!(me.open("GET", "/v1/boxes", &[("origin", ORIGIN)], Bytes::new()).await.status(), 200);
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_half_closed_or_broken_connection_harms_nobody() {
    let Some(daemon) = Daemon::start("a_half_closed_or_broken_connection_harms_nobody").await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let exec = me.exec(&made, json!({ "command": ["cat"], "stdin": "stream" })).await;
    for half in ["", "ab\r\n"] {
        let mut stream = me.connect().await;
        let head = format!("POST {exec}/stdin HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{half}");
        stream.write_all(head.as_bytes()).await.unwrap();
        drop(stream);
    }
    assert_eq!(me.send("POST", &format!("{exec}/stdin"), "whole\n").await.status, 204);
    assert_eq!(me.send("POST", &format!("{exec}/stdin/end"), "").await.status, 204);
    // Connections have no order among each other: the torn one's bytes may come before or after, never within.
    let output = me.ended(&exec).await.0;
    assert!(output.contains("whole\n"), "{output:?}");
    daemon.stop().await;
}
