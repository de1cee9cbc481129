//! What must pass: large bodies, streams of events, compressed answers, trailers, both versions of HTTP.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lent::{ask, get};
use crate::rig::World;
use crate::server::{answering, fixed, ok};

const ALLOW: &str = r#"{ host = "a.test", ports = [PORT], tls = "inspect" }"#;
const BIND: &str = r#"{ secret = "token", host = "a.test", port = PORT }"#;
const TOKEN: &str = "a-token-of-ordinary-length-123456";

#[tokio::test]
async fn each_version_of_http_meets_each() {
    for ours in [&b"http/1.1"[..], b"h2"] {
        for theirs in [&[&b"http/1.1"[..]][..], &[b"h2"], &[b"h2", b"http/1.1"], &[]] {
            let world = World::new(ALLOW, "", &[]).await;
            let seen = answering(&world, &["a.test"], theirs, |parts, body| {
                ok(format!("{} {} {}", parts.method, parts.uri.path(), body.len()))
            });
            let mut request = get(&world, "a.test", ours, "/x?q=1", &[("accept", "text/plain")]);
            *request.method_mut() = http::Method::PUT;
            *request.body_mut() = Full::from(vec![7; 300_000]);
            if ours == b"http/1.1" && theirs == [b"h2"] {
                // A server that speaks nothing but HTTP/2 is not reached by HTTP/1.
                continue;
            }
            let answer = ask(&world, "a.test", ours, request).await;
            assert_eq!(
                (answer.status, &answer.body[..]),
                (StatusCode::OK, &b"PUT /x 300000"[..]),
                "{ours:?} {theirs:?}"
            );
            let seen = seen.lock().unwrap();
            assert_eq!(seen[0].0.uri.path_and_query().unwrap(), "/x?q=1");
            assert_eq!(seen[0].0.headers["accept"], "text/plain");
        }
    }
}

#[tokio::test]
async fn many_requests_share_a_connection_and_none_gets_the_others_answer() {
    let world = World::new(ALLOW, "", &[]).await;
    answering(&world, &["a.test"], &[b"h2", b"http/1.1"], |parts, _| ok(parts.uri.path().to_owned()));
    let stream = world.tls("a.test", b"h2").await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..40 {
        let mut sender = sender.clone();
        let path = format!("/n{number}");
        let request = get(&world, "a.test", b"h2", &path, &[]);
        waiting.spawn(async move {
            let answer =
                sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
            assert_eq!(answer, path);
        });
    }
    while let Some(done) = waiting.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn events_arrive_one_by_one_also_where_answers_are_scrubbed() {
    let world = World::new(ALLOW, BIND, &[("token", TOKEN)]).await;
    let (go, gone) = tokio::sync::mpsc::channel::<()>(1);
    let gone = Arc::new(tokio::sync::Mutex::new(gone));
    world.serve(world.authority().server(&["a.test"], &[]), move |mut stream| {
        let gone = Arc::clone(&gone);
        async move {
            let mut head = [0; 4096];
            assert!(stream.read(&mut head).await.unwrap() > 0);
            let start =
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(start.as_bytes()).await.unwrap();
            for number in 0..3 {
                stream.write_all(format!("9\r\ndata: {number}\n\n\r\n").as_bytes()).await.unwrap();
                stream.flush().await.unwrap();
                // The next one is sent only after the guest has seen this one.
                gone.lock().await.recv().await;
            }
            stream.write_all(b"0\r\n\r\n").await.ok();
        }
    });
    let stream = world.tls("a.test", b"http/1.1").await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request: Request<Full<Bytes>> = get(&world, "a.test", b"http/1.1", "/events", &[]);
    let mut body = sender.send_request(request).await.unwrap().into_body();
    for number in 0..3 {
        let frame = tokio::time::timeout(Duration::from_secs(60), body.frame())
            .await
            .expect("an event was held back");
        assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), format!("data: {number}\n\n"));
        go.send(()).await.unwrap();
    }
    assert!(body.frame().await.is_none());
}

#[tokio::test]
async fn compressed_answers_pass_unread_where_no_secret_is_bound() {
    // One that would unpack to much more than it is: nobody here unpacks anything.
    let bomb: Vec<u8> = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3].into_iter().chain([0xff; 5000]).collect();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", bomb.len());
    let world = World::new(ALLOW, "", &[]).await;
    fixed(&world, &["a.test"], [head.as_bytes(), &bomb].concat());
    let request = get(&world, "a.test", b"http/1.1", "/", &[("accept-encoding", "gzip")]);
    let answer = ask(&world, "a.test", b"http/1.1", request).await;
    assert_eq!(answer.headers["content-encoding"], "gzip");
    assert_eq!(answer.body, bomb);
}

#[tokio::test]
async fn large_bodies_pass_both_ways_whole_and_scrubbed_without_a_change_of_length() {
    let world = World::new(ALLOW, BIND, &[("token", TOKEN)]).await;
    answering(&world, &["a.test"], &[], |_, body| ok(body.clone()));
    // The secret stands at the border of every kind of piece.
    let mut body = vec![b'x'; 3_000_000];
    for at in (1_000..2_900_000).step_by(16_383) {
        body[at..at + TOKEN.len()].copy_from_slice(TOKEN.as_bytes());
    }
    let mut request = get(&world, "a.test", b"http/1.1", "/", &[]);
    *request.method_mut() = http::Method::POST;
    *request.body_mut() = Full::from(body.clone());
    let answer = ask(&world, "a.test", b"http/1.1", request).await;
    assert_eq!(answer.headers["content-length"], "3000000");
    let clean = String::from_utf8(body).unwrap().replace(TOKEN, &"*".repeat(TOKEN.len()));
    assert!(answer.body == clean, "scrubbed wrongly");
}

#[tokio::test]
async fn trailers_pass_without_what_no_answer_may_say() {
    let world = World::new(ALLOW, BIND, &[("token", TOKEN)]).await;
    let answer = format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: grpc-status, x-blastbox-denied, alt-svc, x-said\r\n\r\n\
         2\r\nhi\r\n0\r\ngrpc-status: 0\r\nx-blastbox-denied: budget-spent\r\nalt-svc: h3=\":443\"\r\nx-said: {TOKEN}\r\n\r\n"
    );
    fixed(&world, &["a.test"], answer.into_bytes());
    for alpn in [&b"h2"[..], b"http/1.1"] {
        let request = get(&world, "a.test", alpn, "/", &[("te", "trailers")]);
        let answer = ask(&world, "a.test", alpn, request).await;
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, &b"hi"[..]));
        let trailers = answer.trailers.expect("trailers");
        assert_eq!(trailers["grpc-status"], "0", "{alpn:?}");
        assert_eq!(trailers["x-said"], "*".repeat(TOKEN.len()), "{alpn:?}");
        assert_eq!(trailers.len(), 2, "{alpn:?}: {trailers:?}");
    }
}

/// A server that takes nothing keeps HTTP/2 waiting for room, in tasks of its own that nobody else holds.
#[tokio::test]
async fn a_shared_connection_ends_with_its_rule_although_the_server_takes_nothing() {
    let world = World::new(ALLOW, "", &[]).await;
    let (spoken_to, speaks) = tokio::sync::oneshot::channel();
    let (over, ended) = tokio::sync::oneshot::channel();
    let mut once = Some((spoken_to, over));
    world.serve(world.authority().server(&["a.test"], &[b"h2"]), move |mut stream| {
        let once = once.take();
        async move {
            let Some((spoken_to, over)) = once else { return };
            // Its settings, and then not one byte of room more than every connection has.
            stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
            let (mut piece, mut taken) = ([0; 4096], 0);
            let mut spoken_to = Some(spoken_to);
            while let Ok(got @ 1..) = stream.read(&mut piece).await {
                taken += got;
                // All the room that there is without our word.
                if taken > 65_535
                    && let Some(spoken_to) = spoken_to.take()
                {
                    spoken_to.send(()).unwrap();
                }
            }
            over.send(()).unwrap();
        }
    });
    let mut request = get(&world, "a.test", b"h2", "/x", &[]);
    *request.method_mut() = http::Method::PUT;
    *request.body_mut() = Full::from(vec![7; 1_000_000]);
    let stream = world.tls("a.test", b"h2").await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let asked = tokio::spawn(async move { sender.send_request(request).await.map(drop) });
    speaks.await.unwrap();
    let nothing = blastbox_policy::parse("threat = \"medium\"\n").unwrap();
    world.house.change_rules(nothing.network_rules().clone());
    // Before the server is found dead because it answers no ping.
    tokio::time::timeout(Duration::from_secs(25), ended)
        .await
        .expect("the connection is still there")
        .unwrap();
    asked.abort();
}

#[tokio::test]
async fn plain_http_is_read_by_the_same_rules() {
    let allow =
        r#"{ host = "a.test", ports = [PORT], protocol = "http", methods = ["GET"], paths = ["/ok/*"] }"#;
    let world = World::new(allow, "", &[]).await;
    let listener = world.listener();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let got = stream.read(&mut head).await.unwrap();
            assert!(head[..got].starts_with(b"GET /ok/x HTTP/1.1\r\n"));
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nAlt-Svc: h3=\":443\"\r\n\r\nhi")
                .await
                .unwrap();
        }
    });
    let ask = async |target: &str| {
        let mut stream = world.connect("a.test").await.unwrap();
        let head =
            format!("GET {target} HTTP/1.1\r\nHost: a.test:{}\r\nConnection: close\r\n\r\n", world.port);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = ask("/ok/x").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hi"), "{answer}");
    assert!(!answer.to_ascii_lowercase().contains("alt-svc"));
    assert!(ask("/other").await.contains("path-not-allowed"));
}

#[tokio::test]
async fn a_kept_connection_that_the_server_has_closed_is_made_anew() {
    let world = World::new(ALLOW, "", &[]).await;
    // One answer for each connection; hyper keeps it, and finds it closed.
    fixed(&world, &["a.test"], b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec());
    let stream = world.tls("a.test", b"http/1.1").await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        sender.ready().await.unwrap();
        let request = get(&world, "a.test", b"http/1.1", "/", &[]);
        let answer = sender.send_request(request).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hi");
    }
}
