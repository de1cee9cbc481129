//! The lines to a server behind one connection of the box: how many there may be, and how often a request goes over them.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use blastbox_policy::NetworkLimits;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

use crate::lent::get;
use crate::rig::World;
use crate::server::{fixed, ok};

const ALLOW: &str = r#"{ host = "a.test", ports = [PORT], tls = "inspect" }"#;
const BIND: &str = r#"{ secret = "token", host = "a.test", port = PORT }"#;
const TOKEN: &str = "a-token-of-ordinary-length-123456";

/// One connection of the box by HTTP/2.
async fn shared(world: &World) -> SendRequest<Full<Bytes>> {
    let stream = world.tls("a.test", b"h2").await.unwrap();
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

fn request(world: &World) -> Request<Full<Bytes>> {
    get(world, "a.test", b"h2", "/", &[])
}

/// Status and body of an answer that has to come soon.
async fn answered(
    sender: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> (StatusCode, String) {
    let asked = sender.send_request(request);
    let response = tokio::time::timeout(Duration::from_secs(20), asked).await.expect("no answer").unwrap();
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

fn limit(world: &World, change: impl FnOnce(&mut NetworkLimits)) {
    let mut rules = (*world.house.rules()).clone();
    change(&mut rules.limits);
    world.house.change_rules(rules);
}

/// A server that resets each of them would get the secret as often as the line is quick.
#[tokio::test]
async fn a_request_that_its_server_resets_is_not_sent_again() {
    let world = World::new(ALLOW, BIND, &[("token", TOKEN)]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    world.serve(world.authority().server(&["a.test"], &[b"h2"]), move |stream| {
        let count = Arc::clone(&count);
        let service = service_fn(move |_| {
            let first = count.fetch_add(1, Ordering::Relaxed) == 0;
            async move { if first { Ok(ok("hi")) } else { Err("no") } }
        });
        async move {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            server.serve_connection(TokioIo::new(stream), service).await.ok();
        }
    });
    let mut sender = shared(&world).await;
    assert_eq!(answered(&mut sender, request(&world)).await, (StatusCode::OK, "hi".to_owned()));
    for method in ["GET", "HEAD", "PUT", "DELETE"] {
        let before = asked.load(Ordering::Relaxed);
        let mut again = request(&world);
        *again.method_mut() = method.parse().unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(20), sender.send_request(again)).await;
        assert_eq!(answer.expect("no answer").unwrap().status(), StatusCode::BAD_GATEWAY, "{method}");
        assert_eq!(asked.load(Ordering::Relaxed), before + 1, "{method}");
    }
    assert_eq!(world.lent().len(), 5);
}

/// As servers do that are about to go: the request was not looked at.
#[tokio::test]
async fn a_request_that_its_server_has_not_looked_at_is_sent_again_once() {
    let world = World::new(ALLOW, "", &[]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    world.serve(world.authority().server(&["a.test"], &[b"h2"]), move |stream| {
        let count = Arc::clone(&count);
        let service = service_fn(move |_| {
            let answers = [1, 3].contains(&(count.fetch_add(1, Ordering::Relaxed) + 1));
            async move { if answers { Ok(ok("hi")) } else { Err(h2::Error::from(h2::Reason::REFUSED_STREAM)) } }
        });
        async move {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            server.serve_connection(TokioIo::new(stream), service).await.ok();
        }
    });
    let mut sender = shared(&world).await;
    // The first; then one that is refused and sent again; then one that is refused twice.
    for (status, count) in [(StatusCode::OK, 1), (StatusCode::OK, 3), (StatusCode::BAD_GATEWAY, 5)] {
        assert_eq!(answered(&mut sender, request(&world)).await.0, status);
        assert_eq!(asked.load(Ordering::Relaxed), count);
    }
}

#[tokio::test]
async fn a_shared_line_that_ends_is_made_anew_once() {
    let world = World::new(ALLOW, "", &[]).await;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    world.serve(world.authority().server(&["a.test"], &[b"h2"]), move |stream| {
        let (count, over) = (Arc::clone(&count), Arc::new(Notify::new()));
        let end = Arc::clone(&over);
        let service = service_fn(move |_| {
            // With every other than these its line ends.
            let answers = [1, 3].contains(&(count.fetch_add(1, Ordering::Relaxed) + 1));
            let end = Arc::clone(&end);
            async move {
                if !answers {
                    end.notify_one();
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(ok("hi"))
            }
        });
        async move {
            let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::select! {
                _ = server.serve_connection(TokioIo::new(stream), service) => {}
                () = over.notified() => {}
            }
        }
    });
    let mut sender = shared(&world).await;
    // Over the first line; then over the first, which ends, and the second.
    for count in [1, 3] {
        assert_eq!(answered(&mut sender, request(&world)).await, (StatusCode::OK, "hi".to_owned()));
        assert_eq!(asked.load(Ordering::Relaxed), count);
    }
    // Over the second, which ends, and the third, which ends: that was once.
    let (status, _) = answered(&mut sender, request(&world)).await;
    assert_eq!((status, asked.load(Ordering::Relaxed)), (StatusCode::BAD_GATEWAY, 5));
    // What changes something by being sent twice is not.
    let mut post = request(&world);
    *post.method_mut() = http::Method::POST;
    *post.body_mut() = Full::from("x");
    let (status, _) = answered(&mut sender, post).await;
    assert_eq!((status, asked.load(Ordering::Relaxed)), (StatusCode::BAD_GATEWAY, 6));
}

/// Of HTTP/1, where each request at the same time needs a line of its own.
#[tokio::test]
async fn lines_beyond_the_first_count_as_connections_of_the_box() {
    let world = World::new(ALLOW, "", &[]).await;
    limit(&world, |limits| limits.flows = 4);
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (lines, peak) = (Arc::clone(&open), Arc::clone(&most));
    world.serve(world.authority().server(&["a.test"], &[]), move |mut stream| {
        let (lines, peak) = (Arc::clone(&lines), Arc::clone(&peak));
        async move {
            peak.fetch_max(lines.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            // It never answers.
            while let Ok(1..) = stream.read(&mut [0; 4096]).await {}
            lines.fetch_sub(1, Ordering::Relaxed);
        }
    });
    let mut sender = shared(&world).await;
    let mut waiting = tokio::task::JoinSet::new();
    for _ in 0..10 {
        let asked = sender.send_request(request(&world));
        waiting.spawn(async move {
            let response = asked.await.unwrap();
            let status = response.status();
            (status, response.into_body().collect().await.unwrap().to_bytes())
        });
    }
    for _ in 0..6 {
        let refused = tokio::time::timeout(Duration::from_secs(20), waiting.join_next()).await;
        let (status, body) = refused.expect("more lines than connections").unwrap().unwrap();
        assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
        assert!(String::from_utf8_lossy(&body).contains("\"reason\":\"flow-limit\""), "{body:?}");
    }
    assert_eq!((open.load(Ordering::Relaxed), most.load(Ordering::Relaxed)), (4, 4));
    assert!(world.denials().contains(&"flow-limit"));
    // Each place is given back with its line.
    waiting.abort_all();
    let gone = async {
        while open.load(Ordering::Relaxed) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), gone).await.expect("lines stay open");
    let asked = sender.send_request(request(&world));
    let asked = tokio::spawn(asked);
    let again = async {
        while open.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again).await.expect("no place was given back");
    asked.abort();
}

#[tokio::test]
async fn lines_made_anew_are_held_against_the_rate_of_connections() {
    let world = World::new(ALLOW, "", &[]).await;
    limit(&world, |limits| limits.connections_per_second = 1);
    // One answer for each line.
    fixed(
        &world,
        &["a.test"],
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi".to_vec(),
    );
    let begun = Instant::now();
    let mut sender = shared(&world).await;
    let mut served = 0;
    for _ in 0..30 {
        match answered(&mut sender, request(&world)).await {
            (StatusCode::OK, body) => {
                assert_eq!(body, "hi");
                served += 1;
            }
            (status, body) => {
                assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
                assert!(body.contains("\"reason\":\"rate-limit\""), "{body}");
            }
        }
    }
    let most = 2 + begun.elapsed().as_secs();
    assert!((1..=most).contains(&served), "{served} of 30, at most {most}");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(answered(&mut sender, request(&world)).await.0, StatusCode::OK);
}

/// One after the other they need one place, and that is the connection's own; a second while the one before is still ending.
#[tokio::test]
async fn a_line_that_is_gone_leaves_its_place_to_the_next() {
    let world = World::new(ALLOW, "", &[]).await;
    limit(&world, |limits| limits.flows = 2);
    fixed(&world, &["a.test"], b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi".to_vec());
    let mut sender = shared(&world).await;
    for number in 0..20 {
        let (status, body) = answered(&mut sender, request(&world)).await;
        assert_eq!((status, body.as_str()), (StatusCode::OK, "hi"), "{number}");
    }
}
