//! What `--json` prints: the receipt, and everything that the command printed.

use blastbox_engine::Stream;
use blastbox_policy::Bytes;
use blastbox_wire::receipt::Receipt;
use serde::Serialize;

/// Output that one document may hold: it lies in memory several times over, as bytes, as base64 and as text.
pub(crate) const MOST_IN_JSON: Bytes = Bytes::mib(1_024);

/// Output that is kept. Bounded by the policy's limit on output, which `--json` takes only up to [`MOST_IN_JSON`].
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Capture {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
}

impl Capture {
    pub(crate) fn add(&mut self, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout => self.stdout.extend_from_slice(bytes),
            Stream::Stderr => self.stderr.extend_from_slice(bytes),
        }
    }
}

/// The document that stands on standard output.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    receipt: &'a Receipt,
    stdout: Captured,
    stderr: Captured,
}

#[derive(Debug, Serialize)]
struct Captured {
    base64: String,
    /// `None` where the bytes are not UTF-8.
    text: Option<String>,
}

impl<'a> Document<'a> {
    pub(crate) fn new(receipt: &'a Receipt, capture: Capture) -> Self {
        Self { receipt, stdout: Captured::of(capture.stdout), stderr: Captured::of(capture.stderr) }
    }
}

impl Captured {
    fn of(bytes: Vec<u8>) -> Self {
        Self { base64: base64(&bytes), text: String::from_utf8(bytes).ok() }
    }
}

/// RFC 4648 with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let letter =
        |six: u32| usize::try_from(six & 63).ok().and_then(|at| ALPHABET.get(at)).map_or('=', |&b| b.into());
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let at = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let group = at(0) << 16 | at(1) << 8 | at(2);
        text.extend([letter(group >> 18), letter(group >> 12)]);
        text.push(if chunk.len() > 1 { letter(group >> 6) } else { '=' });
        text.push(if chunk.len() > 2 { letter(group) } else { '=' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_the_standard() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(base64(&[0xff, 0xfe, 0xfd, 0xfc]), "//79/A==");
    }

    #[test]
    fn each_stream_is_kept_apart() {
        let mut capture = Capture::default();
        capture.add(Stream::Stdout, b"a");
        capture.add(Stream::Stderr, b"b");
        assert_eq!((capture.stdout.as_slice(), capture.stderr.as_slice()), (&b"a"[..], &b"b"[..]));
    }

    #[test]
    fn bytes_that_are_no_text_have_no_text() {
        assert_eq!(Captured::of(vec![0xff]).text, None);
        assert_eq!(Captured::of(b"hi".to_vec()).text.as_deref(), Some("hi"));
    }
}
