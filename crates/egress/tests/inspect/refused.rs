//! What must not pass: each attempt is refused with its reason, and the server never sees a byte of it.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::lent::{ask, get};
use crate::rig::World;
use crate::server::{answering, ok};

const ALLOW: &str = r#"{ host = "api.github.com", ports = [PORT], tls = "inspect", methods = ["GET", "POST"], paths = ["/repos/acme/*"] },
 { host = "other.github.com", ports = [PORT], tls = "inspect" },
 { host = "dns.github.com", ports = [PORT], tls = "inspect", resolver = "dangerously-allowed" }"#;

/// Sends raw bytes over an inspected connection and reads until its end.
async fn raw(world: &World, bytes: &str) -> String {
    let mut stream = world.tls("api.github.com", b"http/1.1").await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The gateway may close without the last words of TLS.
    stream.read_to_end(&mut answer).await.ok();
    String::from_utf8_lossy(&answer).into_owned()
}

async fn world() -> (World, crate::server::Seen) {
    let world = World::new(ALLOW, "", &[]).await;
    let seen = answering(&world, &["api.github.com", "other.github.com", "dns.github.com"], &[], |_, _| {
        ok("served")
    });
    (world, seen)
}

#[tokio::test]
async fn a_request_that_can_be_read_in_two_ways_is_refused_before_anything_is_sent() {
    let (world, seen) = world().await;
    let head = format!("POST /repos/acme/x HTTP/1.1\r\nHost: api.github.com:{}\r\n", world.port);
    for (lines, words) in [
        ("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "two lengths"),
        ("Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", "given twice"),
        ("Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n", "not exactly chunked"),
        ("X: a\r\n b\r\n\r\n", "folded"),
        ("X: a\nY: b\r\n\r\n", "CR LF"),
        ("Host: api.github.com\r\n\r\n", "exactly one Host"),
        ("Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n", "CR LF"),
    ] {
        let answer = raw(&world, &format!("{head}{lines}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{lines:?}: {answer}");
        assert!(
            answer.contains("\"reason\":\"bad-request\"") && answer.contains(words),
            "{lines:?}: {answer}"
        );
    }
    assert_eq!(seen.lock().unwrap().len(), 0);
    // The same reason within a second is told once and then counted.
    assert_eq!(world.denials(), ["bad-request"]);
}

#[tokio::test]
async fn a_request_for_another_host_than_the_connection_is_refused() {
    let (world, seen) = world().await;
    let port = world.port;
    for (target, host) in [
        ("/repos/acme/x".to_owned(), format!("evil.test:{port}")),
        ("/repos/acme/x".to_owned(), format!("api.github.com.evil.test:{port}")),
        ("/repos/acme/x".to_owned(), format!("api.github.com@evil.test:{port}")),
        // Allowed by another rule, but not what this connection was opened for.
        ("/repos/acme/x".to_owned(), format!("other.github.com:{port}")),
        ("/repos/acme/x".to_owned(), "api.github.com".to_owned()),
        (format!("https://evil.test:{port}/repos/acme/x"), format!("api.github.com:{port}")),
        (format!("http://api.github.com:{port}/repos/acme/x"), format!("api.github.com:{port}")),
    ] {
        let answer =
            raw(&world, &format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains("authority-mismatch"),
            "{target} {host}: {answer}"
        );
    }
    assert_eq!(seen.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn methods_and_paths_hold_for_the_one_form_of_a_path() {
    let (world, seen) = world().await;
    let ask = async |method: &str, path: &str| {
        let host = format!("api.github.com:{}", world.port);
        raw(&world, &format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")).await
    };
    for (method, path, reason) in [
        ("DELETE", "/repos/acme/x", "method-not-allowed"),
        ("get", "/repos/acme/x", "method-not-allowed"),
        ("TRACE", "/repos/acme/x", "method-not-allowed"),
        ("GET", "/repos/acmeevil", "path-not-allowed"),
        ("GET", "/repos/acme/../../user", "path-not-allowed"),
        ("GET", "/repos/acme/%2e%2e/user", "path-not-allowed"),
        ("GET", "/repos/acme/..;/user", "path-not-allowed"),
        ("GET", "/repos/acme%2f..%2fuser", "path-not-allowed"),
        ("GET", "/repos/acme//user", "path-not-allowed"),
        ("GET", "/repos/acme/%252e%252e/user", "path-not-allowed"),
        ("GET", "/repos/acme\\..\\user", "path-not-allowed"),
        ("OPTIONS", "*", "method-not-allowed"),
        ("GET", "*", "bad-request"),
        ("GET", &format!("api.github.com:{}", world.port), "bad-request"),
    ] {
        let answer = ask(method, path).await;
        assert!(answer.contains(&format!("\"reason\":\"{reason}\"")), "{method} {path}: {answer}");
    }
    assert_eq!(seen.lock().unwrap().len(), 0);
    // The neighbour is allowed, and the server sees the form that was judged.
    let answer = ask("GET", "/%72epos/acme/%78?a=%2f").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("served"), "{answer}");
    assert_eq!(seen.lock().unwrap()[0].0.uri, "/repos/acme/x?a=%2f");
}

#[tokio::test]
async fn a_hello_for_another_name_is_refused() {
    let (world, seen) = world().await;
    for sni in ["evil.test", "other.github.com", "api.github.com.evil.test"] {
        assert!(world.tls_as("api.github.com", sni, b"http/1.1").await.is_err(), "{sni}");
    }
    // An address is not sent as a name.
    assert!(world.tls_as("api.github.com", "127.0.0.1", b"http/1.1").await.is_err());
    assert_eq!(world.denials(), ["tls-name-mismatch", "tls-name-missing"]);
    assert!(world.connect("evil.test").await.is_err());
    let mut plain = world.connect("api.github.com").await.unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\nHost: api.github.com\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    plain.read_to_end(&mut rest).await.ok();
    assert_eq!(rest, b"");
    assert_eq!(world.denials().last(), Some(&"not-tls"));
    assert_eq!(seen.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_server_that_is_not_who_it_should_be_is_not_spoken_to() {
    let world = World::new(ALLOW, "", &[]).await;
    let seen = answering(&world, &["evil.test"], &[], |_, _| ok("served"));
    let host = format!("api.github.com:{}", world.port);
    let answer =
        raw(&world, &format!("GET /repos/acme/x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
            .await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("certificate-name-mismatch"), "{answer}");
    assert!(answer.contains("for other names than this one"), "{answer}");
    assert_eq!(seen.lock().unwrap().len(), 0);
}

#[tokio::test]
async fn a_server_that_is_down_is_said_to_be_down() {
    let world = World::new(ALLOW, "", &[]).await;
    drop(world.listener());
    let host = format!("api.github.com:{}", world.port);
    let answer =
        raw(&world, &format!("GET /repos/acme/x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
            .await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("unreachable"), "{answer}");
}

#[tokio::test]
async fn a_resolver_over_https_is_not_asked_although_its_host_is_allowed() {
    let (world, seen) = world().await;
    let name = "other.github.com";
    for alpn in [&b"http/1.1"[..], b"h2"] {
        for (method, path, header) in [
            ("POST", "/any", ("content-type", "application/dns-message")),
            (
                "GET",
                "/any?dns=AAABAAABAAAAAAAAA3d3dw",
                ("accept", "text/html, Application/DNS-Message;q=0.9"),
            ),
            ("GET", "/resolve?name=data.evil.test", ("accept", "application/dns-json")),
            ("GET", "/dns-query?dns=AAABAAABAAAAAAAAA3d3dw", ("accept", "*/*")),
            ("GET", "//dns-query?dns=AAABAAABAAAAAAAAA3d3dw", ("accept", "*/*")),
            ("GET", "/x/../dns-query?dns=AAABAAABAAAAAAAAA3d3dw", ("accept", "*/*")),
            ("GET", "/%2e/%64ns-query?dns=AAABAAABAAAAAAAAA3d3dw", ("accept", "*/*")),
        ] {
            let mut request = get(&world, name, alpn, path, &[header]);
            *request.method_mut() = method.parse().unwrap();
            let answer = ask(&world, name, alpn, request).await;
            assert_eq!(answer.status, 403, "{method} {path}");
        }
    }
    assert_eq!(seen.lock().unwrap().len(), 0);
    assert_eq!(world.denials(), ["resolver-not-allowed"]);
    // Where the rule has the word for it, it is.
    let path = "/dns-query?dns=AAABAAABAAAAAAAAA3d3dw";
    let request = get(&world, "dns.github.com", b"http/1.1", path, &[("accept", "application/dns-message")]);
    assert_eq!(ask(&world, "dns.github.com", b"http/1.1", request).await.status, 200);
    for (path, kind) in
        [("/dns", "application/json"), ("/x/dns-query", "application/dns"), ("/?dns=1", "*/*")]
    {
        let request = get(&world, name, b"http/1.1", path, &[("accept", kind)]);
        assert_eq!(ask(&world, name, b"http/1.1", request).await.status, 200, "{path}");
    }
}
