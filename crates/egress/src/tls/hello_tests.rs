//! Real hellos of rustls, cut, spoiled and without a name.

use std::sync::Arc;

use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls_pki_types::ServerName;

use super::*;

fn client(name: &str, with_sni: bool) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    config.enable_sni = with_sni;
    let mut client =
        ClientConnection::new(Arc::new(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

/// One record as several, each with `size` bytes of the message.
fn in_records(hello: &[u8], size: usize) -> Vec<u8> {
    let body = &hello[5..];
    body.chunks(size)
        .flat_map(|part| [&[22, 3, 1], &u16::try_from(part.len()).unwrap().to_be_bytes()[..], part].concat())
        .collect()
}

fn read_all(bytes: &[u8], size: usize) -> Result<Option<Hello>, BadHello> {
    let mut reader = Reader::default();
    for piece in bytes.chunks(size) {
        if let Some(hello) = reader.feed(piece)? {
            return Ok(Some(hello));
        }
    }
    Ok(None)
}

#[test]
fn the_name_is_found_however_the_bytes_are_cut() {
    let hello = client("api.example.com", true);
    for bytes in [hello.clone(), in_records(&hello, 50), in_records(&hello, 3)] {
        for size in [1, 7, bytes.len()] {
            let found = read_all(&bytes, size).unwrap().unwrap();
            assert_eq!(found.name.as_str(), "api.example.com");
            assert_eq!(found.raw, bytes);
            assert!(!found.encrypted_inner);
        }
    }
    assert!(read_all(&hello[..hello.len() - 1], 10).unwrap().is_none());
}

#[test]
fn a_hello_for_nobody_is_refused() {
    let hello = client("api.example.com", false);
    assert!(matches!(read_all(&hello, hello.len()), Err(BadHello::NoName)));
    // rustls does not send addresses as names.
    let hello = client("192.0.2.1", true);
    assert!(matches!(read_all(&hello, hello.len()), Err(BadHello::NoName)));
}

/// The same hello with one more extension at its end.
fn with_extension(hello: &[u8], kind: u16) -> Vec<u8> {
    let mut body = hello[5..].to_vec();
    let extension = [&kind.to_be_bytes()[..], &[0, 4], &[0, 0, 1, 2]].concat();
    let grown = |length: usize| u16::try_from(length + extension.len()).unwrap().to_be_bytes();
    // Handshake header, version, random; then session id, suites, compression.
    let mut at = 4 + 2 + 32;
    at += 1 + usize::from(body[at]);
    at += 2 + usize::from(u16::from_be_bytes([body[at], body[at + 1]]));
    at += 1 + usize::from(body[at]);
    let length = grown(usize::from(u16::from_be_bytes([body[at], body[at + 1]])));
    body[at..at + 2].copy_from_slice(&length);
    let length = grown(usize::from(u16::from_be_bytes([body[2], body[3]])));
    body[2..4].copy_from_slice(&length);
    body.extend_from_slice(&extension);
    [&hello[..3], &u16::try_from(body.len()).unwrap().to_be_bytes(), &body].concat()
}

#[test]
fn an_encrypted_second_hello_is_seen() {
    let hello = client("public.example.com", true);
    let found = read_all(&with_extension(&hello, 0x1234), 4096).unwrap().unwrap();
    assert!(!found.encrypted_inner);
    let spoiled = with_extension(&hello, ECH);
    for bytes in [spoiled.clone(), in_records(&spoiled, 9)] {
        match read_all(&bytes, 4096) {
            Ok(Some(found)) => assert!(found.encrypted_inner),
            // A library that learns to read the extension may refuse ours, which is noise.
            Err(BadHello::NotTls(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn what_is_not_tls_is_refused_before_it_is_whole() {
    for bytes in [&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], b"SSH-2.0-x\r\n", &[0; 64], &[0xff; 64]] {
        assert!(matches!(read_all(bytes, 64), Err(BadHello::NotTls(_))), "{bytes:?}");
    }
}

#[test]
fn a_hello_without_end_is_cut_off() {
    // A handshake message that claims to be as long as it gets, in records of one byte.
    let mut bytes = vec![22, 3, 1, 0, 4, 1, 0, 0xff, 0xff];
    while bytes.len() <= LARGEST_HELLO + 10 {
        bytes.extend([22, 3, 1, 0, 1, 0]);
    }
    assert!(matches!(read_all(&bytes, 1000), Err(BadHello::TooLarge | BadHello::NotTls(_))));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_nothing_is_let_go() {
    let (mut ours, _theirs) = tokio::io::duplex(64);
    assert!(matches!(read(&mut ours).await, Err(BadHello::TooSlow)));
    let (mut ours, theirs) = tokio::io::duplex(64);
    drop(theirs);
    assert!(matches!(read(&mut ours).await, Err(BadHello::Ended)));
}
