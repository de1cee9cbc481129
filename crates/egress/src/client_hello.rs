//! The first message of TLS: which name is asked for, and whether another one is hidden.
//!
//! Trust: guest. The name is read by rustls, which knows how the message may be cut into records. What rustls does not
//! tell is whether the message carries an encrypted second one (ECH); for that alone the extensions are walked here,
//! after rustls has found the message to be well-formed.

use blastbox_policy::Host;
use rustls::server::Acceptor;

/// The most bytes that a first message may take, in its records.
pub const LONGEST: usize = 32 * 1024;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;

/// What has been read so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hello {
    /// More bytes are needed.
    Unfinished,
    /// A name in the open.
    Name(Host),
    /// No name, or one that is no host name.
    NoName,
    /// A second message is hidden in it.
    Encrypted,
    /// Not TLS.
    NotTls,
}

/// Reads everything that has come so far, from the beginning.
#[must_use]
pub fn read(bytes: &[u8]) -> Hello {
    // What is no handshake is known by its first byte; nobody has to wait for the rest of it.
    match bytes.first() {
        None => return Hello::Unfinished,
        Some(&HANDSHAKE) => {}
        Some(_) => return Hello::NotTls,
    }
    let mut acceptor = Acceptor::default();
    let mut left = bytes;
    while !left.is_empty() {
        match acceptor.read_tls(&mut left) {
            Ok(0) | Err(_) => return Hello::NotTls,
            Ok(_) => {}
        }
        match acceptor.accept() {
            Ok(None) => {}
            Ok(Some(accepted)) => {
                let name =
                    accepted.client_hello().server_name().map(|name| Host::from_bytes(name.as_bytes()));
                return match (hides_another(bytes), name) {
                    (None, _) => Hello::NotTls,
                    (Some(true), _) => Hello::Encrypted,
                    (Some(false), Some(Ok(host))) => Hello::Name(host),
                    (Some(false), _) => Hello::NoName,
                };
            }
            Err(_) => return Hello::NotTls,
        }
    }
    if bytes.len() >= LONGEST { Hello::NotTls } else { Hello::Unfinished }
}

/// Whether the message has the extension that hides another. `None`: it cannot be walked.
fn hides_another(records: &[u8]) -> Option<bool> {
    let mut message = Vec::with_capacity(records.len());
    let mut left = records;
    while let Some((&[kind, _, _, high, low], after)) = left.split_first_chunk::<5>() {
        if kind != HANDSHAKE {
            break;
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        let body = after.get(..length).unwrap_or(after);
        message.extend_from_slice(body);
        left = after.get(length..).unwrap_or_default();
    }
    let (&[kind, a, b, c], body) = message.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes([0, a, b, c])).ok()?;
    let mut at = body.get(..length).filter(|_| kind == CLIENT_HELLO)?;
    // Version and random; then session, cipher suites and compression, each with its length before it.
    take(&mut at, 34)?;
    let session = usize::from(*take(&mut at, 1)?.first()?);
    take(&mut at, session)?;
    let suites = number(&mut at)?;
    take(&mut at, suites)?;
    let compressions = usize::from(*take(&mut at, 1)?.first()?);
    take(&mut at, compressions)?;
    if at.is_empty() {
        return Some(false);
    }
    let all = number(&mut at)?;
    let mut extensions = take(&mut at, all)?;
    while !extensions.is_empty() {
        let kind = number(&mut extensions)?;
        let length = number(&mut extensions)?;
        take(&mut extensions, length)?;
        if kind == usize::from(ENCRYPTED_CLIENT_HELLO) {
            return Some(true);
        }
    }
    Some(false)
}

fn take<'b>(at: &mut &'b [u8], length: usize) -> Option<&'b [u8]> {
    let (bytes, rest) = at.split_at_checked(length)?;
    *at = rest;
    Some(bytes)
}

fn number(at: &mut &[u8]) -> Option<usize> {
    let bytes = take(at, 2)?;
    Some(usize::from(u16::from_be_bytes(bytes.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn hello(name: &'static str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let mut client = rustls::ClientConnection::new(Arc::new(config), name.try_into().unwrap()).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    /// The same message with one more extension at its end.
    fn with_extension(records: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
        let mut bytes = records.to_vec();
        let length = u16::try_from(data.len()).unwrap();
        bytes.extend_from_slice(&kind.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(data);
        let grow = |bytes: &mut [u8], at: usize, by: u16| {
            let old = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            bytes[at..at + 2].copy_from_slice(&(old + by).to_be_bytes());
        };
        let session = usize::from(bytes[43]);
        let suites = usize::from(u16::from_be_bytes([bytes[44 + session], bytes[45 + session]]));
        let extensions = 46 + session + suites + 2;
        grow(&mut bytes, 3, length + 4);
        grow(&mut bytes, 7, length + 4);
        grow(&mut bytes, extensions, length + 4);
        bytes
    }

    #[test]
    fn the_name_is_read_however_the_message_comes() {
        let bytes = hello("api.example.com");
        assert_eq!(read(&bytes), Hello::Name("api.example.com".parse().unwrap()));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), Hello::Unfinished, "{length}");
        }
        // One record for each byte of the message.
        let (_, message) = bytes.split_at(5);
        let cut: Vec<u8> = message.iter().flat_map(|byte| [22, 3, 1, 0, 1, *byte]).collect();
        assert_eq!(read(&cut), Hello::Name("api.example.com".parse().unwrap()));
    }

    #[test]
    fn no_name_hidden_names_and_other_protocols_are_told_apart() {
        assert_eq!(read(&hello("93.184.216.34")), Hello::NoName);
        // An outer message: its cipher, which key, a key and a payload.
        let outer = [0, 0, 1, 0, 1, 7, 0, 1, 9, 0, 1, 9];
        assert_eq!(read(&with_extension(&hello("a.test"), ENCRYPTED_CLIENT_HELLO, &outer)), Hello::Encrypted);
        assert_eq!(read(&with_extension(&hello("a.test"), ENCRYPTED_CLIENT_HELLO, &[0])), Hello::NotTls);
        assert_eq!(
            read(&with_extension(&hello("a.test"), 0x7777, &[0])),
            Hello::Name("a.test".parse().unwrap())
        );
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"SSH-2.0-x\r\n", &[0x16; 64]] {
            assert_eq!(read(other), Hello::NotTls, "{other:?}");
        }
    }
}
