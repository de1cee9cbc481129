//! How a secret can look when a server sends it back: every encoding that is looked for in answers.
//!
//! Best effort by nature: a server that compresses, encrypts or splits the value is not caught. What is caught is the
//! honest echo: debug pages, error messages, JSON that repeats a header, base64 of a Basic login.
//!
//! Each writer of addresses, pages and JSON has its own opinion of what has to be escaped, and one character that it
//! leaves alone is one that a list of fewer writers does not find. So there is a table of them; what is the same for this
//! secret is looked for once, and one of letters and digits costs none of it.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

/// Shorter pieces of an encoded secret are no longer looked for.
const SHORTEST_FORM: usize = 6;
/// Bytes of all forms of one secret: what matching takes of the gateway's memory, many times over. More only come together
/// of thousands of characters that nearly every writer escapes; of such a secret the writers that stand last here are left out.
const MOST_BYTES: usize = 512 * 1024;

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// What writers of addresses leave as it is, beside letters and digits.
const LEFT_IN_ADDRESSES: [&[u8]; 8] = [
    // RFC 3986: Go, Rust, Ruby, curl, PHP's rawurlencode.
    b"-._~",
    // Forms of the WHATWG: URLSearchParams, Java's URLEncoder.
    b"-._*",
    // PHP's urlencode.
    b"-._",
    // Python's quote.
    b"-._~/",
    // JavaScript's encodeURIComponent.
    b"-._~!*'()",
    // .NET's UrlEncode.
    b"-._!*()",
    // JavaScript's encodeURI.
    b"-._~!*'();/?:@&=+$,#",
    // A query that is read by a browser's `URL`, and written again.
    b"-._~!*();/?:@&=+$,[]\\^`{|}%",
];

/// How writers of JSON write a text.
struct Json {
    /// Behind a backslash, beside what must be escaped and has no number.
    slashed: &'static [u8],
    /// By their numbers.
    numbered: &'static [u8],
    digits: &'static [u8; 16],
}

const JSON: [Json; 9] = [
    // What every writer must escape.
    Json { slashed: b"", numbered: b"", digits: LOWER },
    // PHP; Go and Rails; Jinja; Gson; Newtonsoft's for HTML.
    Json { slashed: b"/", numbered: b"", digits: LOWER },
    Json { slashed: b"", numbered: b"<>&", digits: LOWER },
    Json { slashed: b"", numbered: b"<>&'", digits: LOWER },
    Json { slashed: b"", numbered: b"<>&'=", digits: LOWER },
    Json { slashed: b"", numbered: b"<>&'\"", digits: LOWER },
    // Django; .NET; PHP for HTML.
    Json { slashed: b"", numbered: b"<>&", digits: UPPER },
    Json { slashed: b"", numbered: b"<>&'\"+`", digits: UPPER },
    Json { slashed: b"/", numbered: b"<>&'\"", digits: UPPER },
];

/// What writers of HTML and XML put for a character, beside `&amp;`, `&lt;` and `&gt;`.
const MARKUP: [&[(u8, &str)]; 12] = [
    // Text of a document that is written by a browser; of an attribute.
    &[],
    &[(b'"', "&quot;")],
    // Rails, Spring, Express; Python, React; PHP; XML; Go, Jinja.
    &[(b'"', "&quot;"), (b'\'', "&#39;")],
    &[(b'"', "&quot;"), (b'\'', "&#x27;")],
    &[(b'"', "&quot;"), (b'\'', "&#039;")],
    &[(b'"', "&quot;"), (b'\'', "&apos;")],
    &[(b'"', "&#34;"), (b'\'', "&#39;")],
    // Go's templates; ASP.NET; Handlebars; Mustache; OWASP.
    &[(b'"', "&#34;"), (b'\'', "&#39;"), (b'+', "&#43;")],
    &[(b'"', "&quot;"), (b'\'', "&#x27;"), (b'+', "&#x2B;"), (b'`', "&#x60;")],
    &[(b'"', "&quot;"), (b'\'', "&#x27;"), (b'`', "&#x60;"), (b'=', "&#x3D;")],
    &[(b'"', "&quot;"), (b'\'', "&#39;"), (b'/', "&#x2F;"), (b'`', "&#x60;"), (b'=', "&#x3D;")],
    &[(b'"', "&quot;"), (b'\'', "&#x27;"), (b'/', "&#x2F;")],
];

/// Every form of the secret, each once, none empty.
pub(super) fn forms(secret: &[u8]) -> Vec<Zeroizing<Vec<u8>>> {
    let mut forms = Forms::default();
    let logins = [0, 1, 2].map(|shift| base64_at(secret, shift, &STANDARD_NO_PAD));
    forms.add(Zeroizing::new(secret.to_vec()));
    for digits in [LOWER, UPPER] {
        forms.add(hex(secret, digits, b""));
        forms.add(hex(secret, digits, b"%"));
    }
    for (shift, login) in logins.iter().enumerate() {
        forms.add(login.clone());
        forms.add(base64_at(secret, shift, &URL_SAFE_NO_PAD));
    }
    // A login in an address, on a page or in JSON: what base64 has of `+` and `/` looks different there.
    let texts = || std::iter::once(secret).chain(logins.iter().map(|login| login.as_slice()));
    for writer in &JSON {
        texts().for_each(|text| forms.add(json(text, writer)));
    }
    for left in LEFT_IN_ADDRESSES {
        for text in texts() {
            for digits in [UPPER, LOWER] {
                forms.add(percent(text, left, digits, Space::Percent));
                forms.add(percent(text, left, digits, Space::Plus));
            }
        }
    }
    for writer in MARKUP {
        texts().for_each(|text| forms.add(markup(text, writer)));
    }
    forms.known
}

#[derive(Default)]
struct Forms {
    known: Vec<Zeroizing<Vec<u8>>>,
    bytes: usize,
}

impl Forms {
    fn add(&mut self, form: Zeroizing<Vec<u8>>) {
        let fits = self.bytes + form.len() <= MOST_BYTES;
        if form.len() >= SHORTEST_FORM && fits && !self.known.contains(&form) {
            self.bytes += form.len();
            self.known.push(form);
        }
    }
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

fn percent(text: &[u8], left: &[u8], digits: &[u8; 16], space: Space) -> Zeroizing<Vec<u8>> {
    let mut form = Zeroizing::new(Vec::with_capacity(text.len() * 3));
    for byte in text {
        match (byte, &space) {
            (b' ', Space::Plus) => form.push(b'+'),
            _ if byte.is_ascii_alphanumeric() || left.contains(byte) => form.push(*byte),
            _ => {
                form.push(b'%');
                form.extend(nibbles(*byte, digits));
            }
        }
    }
    form
}

fn json(text: &[u8], writer: &Json) -> Zeroizing<Vec<u8>> {
    let mut form = Zeroizing::new(Vec::with_capacity(text.len() * 6));
    for byte in text {
        if writer.numbered.contains(byte) {
            form.extend_from_slice(b"\\u00");
            form.extend(nibbles(*byte, writer.digits));
        } else if matches!(byte, b'"' | b'\\') || writer.slashed.contains(byte) {
            form.extend([b'\\', *byte]);
        } else {
            form.push(*byte);
        }
    }
    form
}

fn markup(text: &[u8], writer: &[(u8, &str)]) -> Zeroizing<Vec<u8>> {
    let mut form = Zeroizing::new(Vec::with_capacity(text.len() * 6));
    for byte in text {
        let named = match byte {
            b'&' => Some("&amp;"),
            b'<' => Some("&lt;"),
            b'>' => Some("&gt;"),
            _ => writer.iter().find(|(known, _)| known == byte).map(|(_, name)| *name),
        };
        match named {
            Some(name) => form.extend_from_slice(name.as_bytes()),
            None => form.push(*byte),
        }
    }
    form
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
    fn what_writers_of_addresses_leave_alone_is_known_of_each() {
        let secret = b"a~b*c/d'e(f)+g=h!i&j<k>l\"";
        for (writer, form) in [
            ("URLSearchParams", "a%7Eb*c%2Fd%27e%28f%29%2Bg%3Dh%21i%26j%3Ck%3El%22"),
            ("urlencode", "a%7Eb%2Ac%2Fd%27e%28f%29%2Bg%3Dh%21i%26j%3Ck%3El%22"),
            ("quote", "a~b%2Ac/d%27e%28f%29%2Bg%3Dh%21i%26j%3Ck%3El%22"),
            ("encodeURIComponent", "a~b*c%2Fd'e(f)%2Bg%3Dh!i%26j%3Ck%3El%22"),
            ("UrlEncode", "a%7eb*c%2fd%27e(f)%2bg%3dh!i%26j%3ck%3el%22"),
            ("encodeURI", "a~b*c/d'e(f)+g=h!i&j%3Ck%3El%22"),
            ("URL", "a~b*c/d%27e(f)+g=h!i&j%3Ck%3El%22"),
        ] {
            assert!(has(secret, form.as_bytes()), "{writer}: {form}");
            // Only what stands behind a sign is in upper case here.
            assert!(has(secret, form.to_ascii_lowercase().as_bytes()), "{writer} in lower case");
        }
        assert!(has(b"a b~c*d", b"a+b%7Ec*d") && has(b"a b~c*d", b"a+b~c%2ad"));
    }

    #[test]
    fn what_writers_of_pages_put_for_a_character_is_known_of_each() {
        let secret = b"a&b<c>d\"e'f+g=h/i`j";
        for (writer, form) in [
            ("a browser", "a&amp;b&lt;c&gt;d\"e'f+g=h/i`j"),
            ("Rails", "a&amp;b&lt;c&gt;d&quot;e&#39;f+g=h/i`j"),
            ("Python", "a&amp;b&lt;c&gt;d&quot;e&#x27;f+g=h/i`j"),
            ("PHP", "a&amp;b&lt;c&gt;d&quot;e&#039;f+g=h/i`j"),
            ("XML", "a&amp;b&lt;c&gt;d&quot;e&apos;f+g=h/i`j"),
            ("Jinja", "a&amp;b&lt;c&gt;d&#34;e&#39;f+g=h/i`j"),
            ("Go", "a&amp;b&lt;c&gt;d&#34;e&#39;f&#43;g=h/i`j"),
            ("ASP.NET", "a&amp;b&lt;c&gt;d&quot;e&#x27;f&#x2B;g=h/i&#x60;j"),
            ("Handlebars", "a&amp;b&lt;c&gt;d&quot;e&#x27;f+g&#x3D;h/i&#x60;j"),
            ("Mustache", "a&amp;b&lt;c&gt;d&quot;e&#39;f+g&#x3D;h&#x2F;i&#x60;j"),
            ("OWASP", "a&amp;b&lt;c&gt;d&quot;e&#x27;f+g=h&#x2F;i`j"),
        ] {
            assert!(has(secret, form.as_bytes()), "{writer}: {form}");
        }
    }

    #[test]
    fn what_writers_of_json_number_is_known_of_each() {
        let secret = b"a<b>c&d'e\"f+g=h/i`j\\k";
        for (writer, form) in [
            ("Python", r#"a<b>c&d'e\"f+g=h/i`j\\k"#),
            ("PHP", r#"a<b>c&d'e\"f+g=h\/i`j\\k"#),
            ("Go", r#"a\u003cb\u003ec\u0026d'e\"f+g=h/i`j\\k"#),
            ("Jinja", r#"a\u003cb\u003ec\u0026d\u0027e\"f+g=h/i`j\\k"#),
            ("Gson", r#"a\u003cb\u003ec\u0026d\u0027e\"f+g\u003dh/i`j\\k"#),
            ("Newtonsoft", r#"a\u003cb\u003ec\u0026d\u0027e\u0022f+g=h/i`j\\k"#),
            ("Django", r#"a\u003Cb\u003Ec\u0026d'e\"f+g=h/i`j\\k"#),
            (".NET", r#"a\u003Cb\u003Ec\u0026d\u0027e\u0022f\u002Bg=h/i\u0060j\\k"#),
            ("PHP for HTML", r#"a\u003Cb\u003Ec\u0026d\u0027e\u0022f+g=h\/i`j\\k"#),
        ] {
            assert!(has(secret, form.as_bytes()), "{writer}: {form}");
        }
    }

    #[test]
    fn a_login_on_a_page_or_in_the_json_of_dotnet_is_known_too() {
        let secret = b"\xfb\xef\xbe\xff\xff\xff\xfb\xef\xbe";
        let text = STANDARD_NO_PAD.encode(secret);
        for (plain, other) in
            [("+", "&#43;"), ("+", "&#x2B;"), ("/", "&#x2F;"), ("+", "\\u002B"), ("+", "%2B"), ("+", "%2b")]
        {
            let text = text.replace(plain, other);
            assert!(has(secret, text.as_bytes()), "{text}");
        }
    }

    /// What matching costs grows with them.
    #[test]
    fn there_are_no_more_forms_than_spellings_and_no_more_bytes_than_fit() {
        // Itself, four times in hexadecimal, and base64 in three places, whose `+` and `/` may have their spellings.
        assert!(forms(b"ghp0123456789abcdefABCDEF").len() <= 1 + 4 + 3 * 11);
        let odd: Vec<u8> = (0x21..0x7f).collect();
        let known = forms(&odd.repeat(3)).len();
        assert!(known <= 80, "{known}");
        // None is left out of one that is as long as secrets are.
        assert_eq!(forms(&odd.repeat(30)).len(), known);
        let longest = odd.repeat(90).split_at(8 * 1024).0.to_vec();
        let found = forms(&longest);
        let bytes: usize = found.iter().map(|form| form.len()).sum();
        assert!(bytes <= MOST_BYTES && found.len() >= 30, "{bytes} in {}", found.len());
        // Those that are met most.
        for text in [&*longest, STANDARD_NO_PAD.encode(&longest).split_at(10_922).0.as_bytes()] {
            let address = percent(text, b"-._~", UPPER, Space::Percent);
            for form in [text, &address, &json(text, &JSON[1])] {
                assert!(found.iter().any(|known| known.as_slice() == form));
            }
        }
    }

    #[test]
    fn no_form_is_so_short_that_it_matches_by_chance() {
        assert!(forms(b"12345678").iter().all(|form| form.len() >= SHORTEST_FORM));
    }
}
