//! What a guest can push is bounded: slow heads, endless headers, floods of resets.

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lent::{ask, get};
use crate::rig::World;
use crate::server::{answering, ok};

const ALLOW: &str = r#"{ host = "a.test", ports = [PORT], tls = "inspect" }"#;

async fn world() -> World {
    let world = World::new(ALLOW, "", &[]).await;
    answering(&world, &["a.test"], &[b"h2", b"http/1.1"], |_, _| ok("served"));
    world
}

#[tokio::test]
async fn endless_headers_are_cut_off_and_the_next_connection_is_served() {
    let world = world().await;
    let mut stream = world.tls("a.test", b"http/1.1").await.unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: a.test:{}\r\n", world.port).as_bytes()).await.unwrap();
    let line = format!("X-Filler: {}\r\n", "y".repeat(4000));
    let mut sent = 0;
    // It stops taking them after 64 KiB; the kernel's buffers hide that for a while.
    while sent < 64 << 20 && stream.write_all(line.as_bytes()).await.is_ok() {
        sent += line.len();
    }
    assert!(sent < 64 << 20, "{sent} bytes of headers were taken");
    assert!(world.denials().contains(&"bad-request"));
    assert_eq!(
        ask(&world, "a.test", b"http/1.1", get(&world, "a.test", b"http/1.1", "/", &[])).await.body,
        "served"
    );
}

/// The gateway's clock is moved by hand: nothing here waits for real.
#[tokio::test]
async fn a_head_that_never_ends_loses_its_connection() {
    let world = world().await;
    let mut stream = world.tls("a.test", b"http/1.1").await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a.t").await.unwrap();
    // One request over another connection: by now the gateway has read the beginning above or will find it old.
    ask(&world, "a.test", b"http/1.1", get(&world, "a.test", b"http/1.1", "/", &[])).await;
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    tokio::time::resume();
    let mut rest = Vec::new();
    let end = tokio::time::timeout(std::time::Duration::from_secs(60), stream.read_to_end(&mut rest)).await;
    assert!(end.is_ok(), "a slow head kept its connection");
}

#[tokio::test]
async fn a_header_list_beyond_the_bound_is_refused_in_http2() {
    let world = world().await;
    let long = "y".repeat(70_000);
    let stream = world.tls("a.test", b"h2").await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = get(&world, "a.test", b"h2", "/", &[("x-long", &long)]);
    // Refused by the client, which knows the bound, or by the gateway.
    match sender.send_request(request).await {
        Err(_) => {}
        Ok(response) => assert_eq!(response.status(), 431),
    }
}

#[tokio::test]
async fn a_flood_of_resets_ends_its_own_connection_only() {
    let world = world().await;
    let stream = world.tls("a.test", b"h2").await.unwrap();
    let (sender, connection) = hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(
        TokioExecutor::new(),
        TokioIo::new(stream),
    )
    .await
    .unwrap();
    tokio::spawn(connection);
    let mut closed = false;
    for _ in 0..200 {
        let mut burst = tokio::task::JoinSet::new();
        for _ in 0..64 {
            let (mut sender, request) = (sender.clone(), get(&world, "a.test", b"h2", "/", &[]));
            burst.spawn(async move { sender.send_request(request).await.is_err() });
        }
        tokio::task::yield_now().await;
        // Dropping them resets their streams.
        burst.abort_all();
        while burst.join_next().await.is_some() {}
        closed |= sender.is_closed();
        if closed {
            break;
        }
    }
    // Whether or not it was ended, the box's next connection is served.
    let request = get(&world, "a.test", b"h2", "/", &[]);
    assert_eq!(ask(&world, "a.test", b"h2", request).await.body, "served");
}

#[tokio::test]
async fn what_names_another_host_in_http2_is_refused() {
    let world = world().await;
    let stream = world.tls("a.test", b"h2").await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let port = world.port;
    for (uri, host) in [
        (format!("https://evil.test:{port}/"), None),
        (format!("https://a.test.evil.test:{port}/"), None),
        (format!("http://a.test:{port}/"), None),
        ("https://a.test/".to_owned(), None),
        (format!("https://a.test:{port}/"), Some("evil.test")),
    ] {
        let mut request = http::Request::builder().uri(&uri);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let response = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(status, 403, "{uri} {host:?}");
        assert!(String::from_utf8_lossy(&body).contains("authority-mismatch"), "{uri} {host:?}");
    }
}
