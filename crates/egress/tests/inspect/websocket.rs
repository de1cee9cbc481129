//! A connection becomes a WebSocket only where a rule says so, and then bytes pass both ways, scrubbed.

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::rig::World;

const TOKEN: &str = "a-token-of-ordinary-length-123456";

/// A server that agrees to any upgrade, says what token it got, and then echoes.
fn upgrading(world: &World) {
    world.serve(world.authority().server(&["a.test"], &[]), |mut stream| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        assert!(
            head.contains("sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==")
                && head.contains("upgrade: websocket")
        );
        let answer = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
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

async fn upgrade(
    world: &World,
    kind: &str,
) -> (tokio_rustls::client::TlsStream<tokio::net::TcpStream>, String) {
    let mut stream = world.tls("a.test", b"http/1.1").await.unwrap();
    let head = format!(
        "GET /chat HTTP/1.1\r\nHost: a.test:{}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: {kind}\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
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
    let allow = r#"{ host = "a.test", ports = [PORT], protocol = "ws", tls = "inspect" }"#;
    let bind = r#"{ secret = "token", host = "a.test", port = PORT }"#;
    let world = World::new(allow, bind, &[("token", TOKEN)]).await;
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
    let ws = r#"{ host = "a.test", ports = [PORT], protocol = "ws", tls = "inspect" }"#;
    let world = World::new(ws, "", &[]).await;
    let (_, answer) = upgrade(&world, "TLS/1.3").await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("upgrade-not-allowed"), "{answer}");
}
