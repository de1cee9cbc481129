//! A connection becomes a WebSocket only where a rule says so, and then bytes pass both ways, scrubbed.

use base64::Engine as _;
use sha1::{Digest as _, Sha1};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::rig::World;

const WS: &str = r#"{ host = "a.test", ports = [PORT], protocol = "ws", tls = "inspect" }"#;
const TOKEN: &str = "a-token-of-ordinary-length-123456";

/// A server that agrees to any upgrade, says what token it got, and then echoes.
fn upgrading(world: &World) {
    world.serve(world.authority().server(&["a.test"], &[]), |mut stream| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap();
        // The gateway's own: the guest could have chosen what its own is answered with.
        assert!(key != "dGhlIHNhbXBsZSBub25jZQ==" && head.contains("upgrade: websocket"), "{head}");
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {}\r\n\r\n",
            accept(key)
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        let token =
            head.lines().find_map(|line| line.strip_prefix("authorization: Bearer ")).unwrap_or("none");
        stream.write_all(format!("got {token};").as_bytes()).await.unwrap();
        let mut piece = [0; 1024];
        while let Ok(got @ 1..) = stream.read(&mut piece).await {
            stream.write_all(&piece[..got]).await.unwrap();
        }
    });
}

/// What a key is answered with (RFC 6455).
fn accept(key: &str) -> String {
    let hash = Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    base64::engine::general_purpose::STANDARD.encode(hash)
}

/// What a client says of the WebSocket that it wants.
const HANDSHAKE: &str = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

async fn upgrade(
    world: &World,
    kind: &str,
) -> (tokio_rustls::client::TlsStream<tokio::net::TcpStream>, String) {
    upgrade_by(world, "GET", kind, HANDSHAKE).await
}

async fn upgrade_by(
    world: &World,
    method: &str,
    kind: &str,
    handshake: &str,
) -> (tokio_rustls::client::TlsStream<tokio::net::TcpStream>, String) {
    let mut stream = world.tls("a.test", b"http/1.1").await.unwrap();
    let head = format!(
        "{method} /chat HTTP/1.1\r\nHost: a.test:{}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: {kind}\r\n\
         {handshake}\r\n",
        world.port
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(stream.read_u8().await.unwrap());
    }
    (stream, String::from_utf8(answer).unwrap())
}

#[tokio::test]
async fn a_websocket_passes_where_the_rule_says_ws() {
    let bind = r#"{ secret = "token", host = "a.test", port = PORT }"#;
    let world = World::new(WS, bind, &[("token", TOKEN)]).await;
    upgrading(&world);
    let (mut stream, answer) = upgrade(&world, "websocket").await;
    assert!(
        answer.starts_with("HTTP/1.1 101 ") && answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        "{answer}"
    );
    let mut said = vec![0; "got ;".len() + TOKEN.len()];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(String::from_utf8(said).unwrap(), format!("got {};", "*".repeat(TOKEN.len())));
    // Bytes that are no request: line feeds, zeros, something that looks like a smuggled head.
    for message in [&b"\n\0\x82\x7f\r\r\n"[..], b"GET / HTTP/1.1\nHost: evil\n\n", &[0xff; 5000]] {
        stream.write_all(message).await.unwrap();
        let mut back = vec![0; message.len()];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(back, message);
    }
}

#[tokio::test]
async fn nothing_else_becomes_something_else() {
    let allow = r#"{ host = "a.test", ports = [PORT], tls = "inspect" }"#;
    let world = World::new(allow, "", &[]).await;
    let (_, answer) = upgrade(&world, "websocket").await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("upgrade-not-allowed"), "{answer}");
    let world = World::new(WS, "", &[]).await;
    let (_, answer) = upgrade(&world, "TLS/1.3").await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("upgrade-not-allowed"), "{answer}");
}

/// A server whose status the guest chooses, and that goes on reading requests: what it is sent next has no method and no path
/// that anybody here has judged.
#[tokio::test]
async fn a_status_alone_opens_no_tunnel() {
    for said in [
        "",
        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
        "Upgrade: websocket\r\n",
        "Upgrade: websocket\r\nSec-WebSocket-Accept: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        "Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo\r\n",
        "Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Accept: x\r\n",
        "Upgrade: h2c\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
    ] {
        let world = World::new(WS, "", &[]).await;
        let (told, seen) = tokio::sync::oneshot::channel();
        let mut told = Some(told);
        world.serve(world.authority().server(&["a.test"], &[]), move |mut stream| {
            let told = told.take().unwrap();
            async move {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.unwrap());
                }
                let answer = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{said}\r\n");
                stream.write_all(answer.as_bytes()).await.unwrap();
                let mut rest = Vec::new();
                stream.read_to_end(&mut rest).await.ok();
                told.send(rest).unwrap();
            }
        });
        let (mut stream, answer) = upgrade(&world, "websocket").await;
        assert!(
            answer.starts_with("HTTP/1.1 502 ") && answer.contains("broken-upstream"),
            "{said}: {answer}"
        );
        // Judged like every other, if it is read at all.
        stream.write_all(b"DELETE /smuggled HTTP/1.1\r\nHost: a.test\r\n\r\n").await.ok();
        drop(stream);
        assert_eq!(seen.await.unwrap(), b"", "{said}");
    }
}

#[tokio::test]
async fn what_does_not_ask_as_the_standard_says_is_not_sent() {
    let world = World::new(WS, "", &[]).await;
    upgrading(&world);
    let version = "Sec-WebSocket-Version: 13\r\n";
    let key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (method, handshake) in [
        ("POST", HANDSHAKE.to_owned()),
        ("HEAD", HANDSHAKE.to_owned()),
        ("GET", key.to_owned()),
        ("GET", version.to_owned()),
        ("GET", format!("{key}Sec-WebSocket-Version: 8\r\n")),
        ("GET", format!("{version}{key}{key}")),
        ("GET", format!("{version}{key}{version}")),
        // Taken away before it is sent.
        ("GET", format!("{version}{key}Connection: Sec-WebSocket-Key\r\n")),
    ] {
        let (_, answer) = upgrade_by(&world, method, "websocket", &handshake).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 ") && answer.contains("bad-request"),
            "{method} {handshake}: {answer}"
        );
    }
    let (_, answer) = upgrade(&world, "websocket").await;
    assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
}
