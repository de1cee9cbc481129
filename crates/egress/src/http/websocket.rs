//! The proof that a server speaks WebSocket (RFC 6455): it answers the key of the request with a word made from it.
//!
//! Without it a status would be enough to open a tunnel, and where the guest chooses what its server answers with, the server
//! would go on reading requests there that nobody has judged. The key is ours, so that the guest cannot choose the word either.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

/// What the standard adds to each key.
const ADDED: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The one version that there is.
const VERSION: &[u8] = b"13";

/// One WebSocket that is asked for.
#[derive(Debug)]
pub(super) struct Wish {
    /// What the server has to answer with.
    proof: String,
    /// What the guest expects to be answered with.
    pub(super) accept: HeaderValue,
}

/// Puts a key of ours into a request for a WebSocket; `Err` where it does not ask as the standard says.
pub(super) fn ask(method: &Method, headers: &mut HeaderMap) -> Result<Wish, &'static str> {
    if *method != Method::GET {
        return Err("an upgrade to WebSocket by another method than GET");
    }
    if only(headers, header::SEC_WEBSOCKET_VERSION) != Some(VERSION) {
        return Err("an upgrade to WebSocket without its version, which is 13");
    }
    let key =
        only(headers, header::SEC_WEBSOCKET_KEY).ok_or("an upgrade to WebSocket without its one key")?;
    let accept = value(&word_for(key))?;
    let mut ours = [0; 16];
    rustix::rand::getrandom(&mut ours, rustix::rand::GetRandomFlags::empty())
        .map_err(|_| "there is no randomness for a key")?;
    let ours = STANDARD.encode(ours);
    headers.insert(header::SEC_WEBSOCKET_KEY, value(&ours)?);
    Ok(Wish { proof: word_for(ours.as_bytes()), accept })
}

/// What a key is answered with.
fn word_for(key: &[u8]) -> String {
    STANDARD.encode(sha1(&[key, ADDED].concat()))
}

fn value(text: &str) -> Result<HeaderValue, &'static str> {
    HeaderValue::from_str(text).map_err(|_| "a key that is no text")
}

/// Whether an answer agrees to a WebSocket, and proves that it means it.
pub(super) fn agrees(headers: &HeaderMap, wish: &Wish) -> bool {
    only(headers, header::UPGRADE).is_some_and(|word| word.eq_ignore_ascii_case(b"websocket"))
        && only(headers, header::SEC_WEBSOCKET_ACCEPT) == Some(wish.proof.as_bytes())
}

/// The value of a header that is there once.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&[u8]> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => Some(value.as_bytes().trim_ascii()),
        (None, _) | (Some(_), Some(_)) => None,
    }
}

/// SHA-1 (FIPS 180-4). Broken as a hash and enough here, where the standard wants it: it tells one kind of server from another and
/// keeps nothing from anybody. Written out because nothing else in this program needs one.
fn sha1(message: &[u8]) -> [u8; 20] {
    let bits = u64::try_from(message.len()).unwrap_or(u64::MAX).wrapping_mul(8);
    let mut padded = message.to_vec();
    padded.push(0x80);
    padded.resize((padded.len() + 8).next_multiple_of(64) - 8, 0);
    padded.extend_from_slice(&bits.to_be_bytes());
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for round in 0..80 {
            let (mixed, constant) = match round {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6_u32),
            };
            let next = a.rotate_left(5).wrapping_add(mixed).wrapping_add(e);
            let next = next.wrapping_add(constant).wrapping_add(words[0]);
            (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
            let fresh = (words[13] ^ words[8] ^ words[2] ^ words[0]).rotate_left(1);
            words.rotate_left(1);
            words[15] = fresh;
        }
        for (word, add) in state.iter_mut().zip([a, b, c, d, e]) {
            *word = word.wrapping_add(add);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), http::HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn sha1_is_that_of_the_standard() {
        let hex =
            |message: &[u8]| -> String { sha1(message).iter().map(|byte| format!("{byte:02x}")).collect() };
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
        // Around the end of a block, where the length still fits or does not.
        assert_eq!(hex(&[b'a'; 55]), "c1c8bbdc22796e28c0e15163d20899b65621d65a");
        assert_eq!(hex(&[b'a'; 56]), "c2db330f6083854c99d4b5bfb6e8f29f201be699");
        assert_eq!(hex(&[b'a'; 64]), "0098ba824b5c16427bd7a1122a5a442a25ec644d");
    }

    #[test]
    fn the_example_of_the_standard_is_proven() {
        let mut asked =
            headers(&[("sec-websocket-version", "13"), ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")]);
        let wish = ask(&Method::GET, &mut asked).unwrap();
        assert_eq!(wish.accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        // The server is asked with another key, and what answers the guest's proves nothing.
        assert_ne!(asked[header::SEC_WEBSOCKET_KEY], "dGhlIHNhbXBsZSBub25jZQ==");
        let mut answer =
            headers(&[("upgrade", "WebSocket"), ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")]);
        assert!(!agrees(&answer, &wish));
        let word = word_for(asked[header::SEC_WEBSOCKET_KEY].as_bytes());
        answer.insert(header::SEC_WEBSOCKET_ACCEPT, word.parse().unwrap());
        assert!(agrees(&answer, &wish));
    }
}
