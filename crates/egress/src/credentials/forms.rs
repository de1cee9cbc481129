//! How a secret can look when a server sends it back: every encoding that is looked for in answers.
//!
//! Best effort by nature: a server that compresses, encrypts or splits the value is not caught. What is caught is the
//! honest echo: debug pages, error messages, JSON that repeats a header, base64 of a Basic login.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// Shorter pieces of an encoded secret are no longer looked for.
const SHORTEST_FORM: usize = 6;

/// Every form of the secret, each once, none empty.
pub(super) fn forms(secret: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut forms = vec![
        Zeroizing::new(secret.to_vec()),
        hex(secret, b"0123456789abcdef", b""),
        hex(secret, b"0123456789ABCDEF", b""),
        hex(secret, b"0123456789abcdef", b"%"),
        hex(secret, b"0123456789ABCDEF", b"%"),
        percent(secret, b"0123456789ABCDEF", Space::Percent),
        percent(secret, b"0123456789abcdef", Space::Percent),
        percent(secret, b"0123456789ABCDEF", Space::Plus),
        json(secret, Escape::Least),
        json(secret, Escape::Slash),
        json(secret, Escape::Html),
    ];
    for shift in 0..3 {
        let text = base64_at(secret, shift, &STANDARD_NO_PAD);
        // A login in an address, or in JSON of a writer that escapes slashes: what base64 has of `+` and `/` looks different there.
        forms.push(percent(&text, b"0123456789ABCDEF", Space::Percent));
        forms.push(percent(&text, b"0123456789abcdef", Space::Percent));
        forms.push(json(&text, Escape::Slash));
        forms.push(text);
        forms.push(base64_at(secret, shift, &URL_SAFE_NO_PAD));
    }
    forms.retain(|form| form.len() >= SHORTEST_FORM);
    forms.sort_unstable_by(|one, other| one.as_slice().cmp(other.as_slice()));
    forms.dedup();
    forms
}

/// The characters that a secret gives in base64 when `shift` unknown bytes stand before it in its group of three and
/// unknown bytes follow: characters that hold bits of a neighbour are left out.
fn base64_at(secret: &[u8], shift: usize, alphabet: &impl Engine) -> Zeroizing<Vec<u8>> {
    let mut padded = Zeroizing::new(vec![0; shift]);
    padded.extend_from_slice(secret);
    let text = Zeroizing::new(alphabet.encode(&*padded).into_bytes());
    // One leading byte spoils two characters, two spoil three.
    let from = if shift == 0 { 0 } else { shift + 1 };
    let to = if padded.len().is_multiple_of(3) { text.len() } else { text.len().saturating_sub(1) };
    Zeroizing::new(text.get(from..to).unwrap_or_default().to_vec())
}

fn hex(secret: &[u8], digits: &[u8; 16], before: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(secret.len() * (2 + before.len())));
    for byte in secret {
        text.extend_from_slice(before);
        text.extend(nibbles(*byte, digits));
    }
    text
}

fn nibbles(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    let digit = |nibble: u8| digits.get(usize::from(nibble)).copied().unwrap_or(b'0');
    [digit(byte >> 4), digit(byte & 0xf)]
}

enum Space {
    Percent,
    Plus,
}

fn percent(secret: &[u8], digits: &[u8; 16], space: Space) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(secret.len() * 3));
    for byte in secret {
        match (byte, &space) {
            (b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~', _) => text.push(*byte),
            (b' ', Space::Plus) => text.push(b'+'),
            _ => {
                text.push(b'%');
                text.extend(nibbles(*byte, digits));
            }
        }
    }
    text
}

enum Escape {
    /// What every writer of JSON must escape.
    Least,
    /// PHP escapes slashes too.
    Slash,
    /// Go, Rails and others escape what HTML would read.
    Html,
}

fn json(secret: &[u8], escape: Escape) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(secret.len() * 2));
    for byte in secret {
        match (byte, &escape) {
            (b'"' | b'\\', _) | (b'/', Escape::Slash) => text.extend([b'\\', *byte]),
            (b'<' | b'>' | b'&' | b'\'', Escape::Html) => {
                text.extend_from_slice(b"\\u00");
                text.extend(nibbles(*byte, b"0123456789abcdef"));
            }
            _ => text.push(*byte),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(secret: &[u8], form: &[u8]) -> bool {
        forms(secret).iter().any(|known| known.as_slice() == form)
    }

    #[test]
    fn a_login_in_base64_holds_a_form_of_the_password_wherever_it_stands() {
        let secret = b"correct>>horse??battery";
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            for before in ["", "a", "ab", "abc:", "user:", "x:"] {
                for after in ["", "1", "12", "123"] {
                    let text = engine.encode([before.as_bytes(), secret, after.as_bytes()].concat());
                    let found = forms(secret).iter().any(|form| {
                        form.len() * 3 / 4 >= secret.len() - 3
                            && text.as_bytes().windows(form.len()).any(|w| w == form.as_slice())
                    });
                    assert!(found, "{before}…{after}");
                }
            }
        }
    }

    #[test]
    fn the_usual_spellings_are_known() {
        assert!(has(b"a b/c\"d<e>", b"a b/c\"d<e>"));
        assert!(has(b"a b/c\"d<e>", b"a%20b%2Fc%22d%3Ce%3E"));
        assert!(has(b"a b/c\"d<e>", b"a%20b%2fc%22d%3ce%3e"));
        assert!(has(b"a b/c\"d<e>", b"a+b%2Fc%22d%3Ce%3E"));
        assert!(has(b"a b/c\"d<e>", b"a b/c\\\"d<e>"));
        assert!(has(b"a b/c\"d<e>", b"a b\\/c\\\"d<e>"));
        assert!(has(b"a b/c\"d<e>", b"a b/c\\\"d\\u003ce\\u003e"));
        assert!(has(b"token-12", b"746f6b656e2d3132"));
        assert!(has(b"token-12", b"746F6B656E2D3132"));
        assert!(has(b"token-12", b"%74%6f%6b%65%6e%2d%31%32"));
    }

    #[test]
    fn a_login_in_an_address_or_in_escaped_json_is_known_too() {
        // `+` and `/` in every place of base64.
        let secret = b"\xfb\xef\xbe\xff\xff\xff\xfb\xef\xbe";
        for (plain, other) in [("+", "%2B"), ("+", "%2b"), ("/", "%2F"), ("/", "%2f"), ("/", "\\/")] {
            let text = STANDARD_NO_PAD.encode(secret);
            assert!(text.contains(plain));
            let text = match other {
                "%2B" | "%2F" => text.replace('+', "%2B").replace('/', "%2F"),
                "%2b" | "%2f" => text.replace('+', "%2b").replace('/', "%2f"),
                _ => text.replace(plain, other),
            };
            assert!(has(secret, text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn no_form_is_so_short_that_it_matches_by_chance() {
        assert!(forms(b"12345678").iter().all(|form| form.len() >= SHORTEST_FORM));
    }
}
