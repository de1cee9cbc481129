//! A secret of this box: no text form, wiped when dropped, one way out.

use zeroize::Zeroizing;

/// Shorter ones cannot be told from ordinary text when answers are scrubbed.
pub const SHORTEST_SECRET: usize = 8;
/// A header line that servers still take.
pub const LONGEST_SECRET: usize = 8 * 1024;

/// A secret as it goes into a header: printable ASCII without spaces at its ends.
///
/// Neither `Debug`, `Display`, `Clone` nor `Serialize`: what cannot be printed cannot be logged.
#[expect(missing_debug_implementations, reason = "a secret has no text form")]
pub struct Secret(Zeroizing<Vec<u8>>);

/// Why bytes cannot be used as a secret. Says nothing about them but their length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSecret {
    /// It would match by chance.
    #[error(
        "the secret has {0} bytes; at least {SHORTEST_SECRET} are needed, or answers cannot be scrubbed of it"
    )]
    TooShort(usize),
    /// No server takes such a header.
    #[error("the secret has {0} bytes; at most {LONGEST_SECRET} fit into a header")]
    TooLong(usize),
    /// A line break would start another header.
    #[error("the secret holds bytes that cannot stand in a header; permitted are printable ASCII characters")]
    NotPrintable,
}

impl Secret {
    /// Takes the bytes of a source; one line end after them is how files and programs end a line, not part of it.
    pub fn new(bytes: Vec<u8>) -> Result<Self, BadSecret> {
        let mut bytes = Zeroizing::new(bytes);
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        match bytes.len() {
            short if short < SHORTEST_SECRET => return Err(BadSecret::TooShort(short)),
            long if long > LONGEST_SECRET => return Err(BadSecret::TooLong(long)),
            _ => {}
        }
        let ends = [bytes.first(), bytes.last()];
        if !bytes.iter().all(|byte| matches!(byte, 0x20..=0x7e)) || ends.contains(&Some(&b' ')) {
            return Err(BadSecret::NotPrintable);
        }
        Ok(Self(bytes))
    }

    /// The one place where a secret becomes bytes again: the header of a request that has passed the policy, and the
    /// patterns that answers are scrubbed of.
    pub(crate) fn expose_to_upstream(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(bytes: &[u8]) -> Option<BadSecret> {
        Secret::new(bytes.to_vec()).err()
    }

    #[test]
    fn one_line_end_is_not_part_of_it() {
        for text in ["s3cret-value", "s3cret-value\n", "s3cret-value\r\n"] {
            let secret = Secret::new(text.into()).ok().unwrap();
            assert_eq!(secret.expose_to_upstream(), b"s3cret-value");
        }
    }

    #[test]
    fn what_would_start_another_header_is_refused() {
        for text in
            ["s3cret\r\nX-Evil: 1", "s3cret\nvalue", "s3cret\0value", "s3cr\u{e9}tvalue", " s3cret-value"]
        {
            assert_eq!(bad(text.as_bytes()), Some(BadSecret::NotPrintable), "{text:?}");
        }
        assert_eq!(bad(b"two words are fine"), None);
    }

    #[test]
    fn what_would_match_by_chance_is_refused() {
        assert_eq!(bad(b"short\n"), Some(BadSecret::TooShort(5)));
        assert_eq!(bad(b""), Some(BadSecret::TooShort(0)));
        assert_eq!(bad(&vec![b'a'; LONGEST_SECRET + 1]), Some(BadSecret::TooLong(LONGEST_SECRET + 1)));
    }
}
