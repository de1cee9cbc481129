//! One form for the path of a request, and refusal of every path that two servers could read differently.
//!
//! Trust: guest. Every byte is chosen by an attacker.
//!
//! Path rules and credential scopes are held against this form, and exactly this form goes upstream: what was judged
//! is what is asked for. `policy would-allow` asks here, too.

/// Longest path that is looked at.
pub const LONGEST_PATH: usize = 8 * 1024;

/// Why a path has no single meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AmbiguousPath {
    /// Not `/…`.
    #[error("the path does not begin with a slash")]
    NotAbsolute,
    /// Longer than any honest one.
    #[error("the path is longer than {LONGEST_PATH} bytes")]
    TooLong,
    /// `.` or `..`, plain, encoded, or with parameters or an encoded query or fragment behind (`..;`, `..%3B`, `..%3F`, `..%23`).
    #[error("the path has a dot segment")]
    DotSegment,
    /// `//`
    #[error("the path has an empty segment")]
    EmptySegment,
    /// `\`, `%2F`, `%5C`: a segment border for some servers only.
    #[error("the path has an encoded slash or a backslash")]
    HiddenSlash,
    /// `%zz`, `%4`
    #[error("the path has a percent sign without two hexadecimal digits")]
    BadPercent,
    /// `%252e`: decoded once or twice?
    #[error("the path is encoded twice")]
    EncodedTwice,
    /// Control characters and bytes beyond ASCII that are not encoded.
    #[error("the path has a byte that cannot stand in a path")]
    BadByte,
}

/// What it says at first sight, for paths that have no canonical form.
#[must_use]
pub fn decoded(path: &str) -> Vec<u8> {
    let (mut plain, mut rest) = (Vec::with_capacity(path.len()), path.as_bytes());
    while let Some((&byte, after)) = rest.split_first() {
        let (byte, after) = (byte == b'%').then(|| triplet(after)).flatten().unwrap_or((byte, after));
        plain.push(byte);
        rest = after;
    }
    plain
}

/// The canonical form: unreserved characters plain, everything else that needs it as `%XX` in upper case.
///
/// `path` is without query. Applied to its own result it changes nothing.
pub fn canonical(path: &str) -> Result<String, AmbiguousPath> {
    let bytes = path.as_bytes();
    if bytes.first() != Some(&b'/') {
        return Err(AmbiguousPath::NotAbsolute);
    }
    let mut form = String::with_capacity(bytes.len().min(LONGEST_PATH));
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        // The form, which may be longer than what was said.
        if form.len() > LONGEST_PATH {
            return Err(AmbiguousPath::TooLong);
        }
        match byte {
            b'%' => {
                let (decoded, after) = triplet(rest).ok_or(AmbiguousPath::BadPercent)?;
                rest = after;
                match decoded {
                    b'/' | b'\\' => return Err(AmbiguousPath::HiddenSlash),
                    0..0x20 | 0x7f => return Err(AmbiguousPath::BadByte),
                    plain if unreserved(plain) => form.push(char::from(plain)),
                    other => push_encoded(&mut form, other),
                }
            }
            b'\\' => return Err(AmbiguousPath::HiddenSlash),
            b'?' | b'#' | 0..=0x20 | 0x7f.. => return Err(AmbiguousPath::BadByte),
            b'"' | b'<' | b'>' | b'^' | b'`' | b'{' | b'|' | b'}' => push_encoded(&mut form, byte),
            plain => form.push(char::from(plain)),
        }
    }
    if form.len() > LONGEST_PATH {
        return Err(AmbiguousPath::TooLong);
    }
    segments(&form)?;
    // In the form, not on the way: `%25%32e` becomes `%252e` only when its second triplet is read.
    if form.split("%25").skip(1).any(|after| triplet(after.as_bytes()).is_some()) {
        return Err(AmbiguousPath::EncodedTwice);
    }
    Ok(form)
}

fn segments(form: &str) -> Result<(), AmbiguousPath> {
    let mut rest = form.split('/').skip(1).peekable();
    while let Some(segment) = rest.next() {
        // Some servers cut a segment at `;` before they look for dots; where a proxy decodes first, at `%3B` too. The form
        // has no other spelling of that.
        let name = before(before(segment, ";"), "%3B");
        // And whoever decodes first and asks another with the result has it cut at what begins a query or a fragment there.
        if matches!(before(before(name, "%3F"), "%23"), "." | "..") {
            return Err(AmbiguousPath::DotSegment);
        }
        if name.is_empty() && (rest.peek().is_some() || !segment.is_empty()) {
            return Err(AmbiguousPath::EmptySegment);
        }
    }
    Ok(())
}

fn before<'a>(text: &'a str, mark: &str) -> &'a str {
    text.split(mark).next().unwrap_or_default()
}

fn triplet(rest: &[u8]) -> Option<(u8, &[u8])> {
    let (&[high, low], after) = rest.split_first_chunk::<2>()?;
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    Some((digit(high)? << 4 | digit(low)?, after))
}

fn unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn push_encoded(form: &mut String, byte: u8) {
    let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase();
    form.extend(['%', digit(byte >> 4), digit(byte & 0xf)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_form_for_every_spelling() {
        for (spelled, form) in [
            ("/", "/"),
            ("/repos/acme", "/repos/acme"),
            ("/repos/acme/", "/repos/acme/"),
            ("/%72epos/%61cme", "/repos/acme"),
            ("/a%20b%c3%a9", "/a%20b%C3%A9"),
            ("/a{b}|c", "/a%7Bb%7D%7Cc"),
            ("/100%25", "/100%25"),
            ("/v1/models:list;v=1,2", "/v1/models:list;v=1,2"),
            ("/a%3Bb", "/a%3Bb"),
            ("/a..%3bb/...%3B", "/a..%3Bb/...%3B"),
            ("/...", "/..."),
            ("/%23tag/a..%3Fb", "/%23tag/a..%3Fb"),
            ("/.well-known/x", "/.well-known/x"),
        ] {
            assert_eq!(canonical(spelled).as_deref(), Ok(form), "{spelled}");
            assert_eq!(canonical(form).as_deref(), Ok(form), "{form} again");
        }
    }

    #[test]
    fn what_two_servers_could_read_differently_is_refused() {
        use AmbiguousPath::*;
        for (path, why) in [
            ("", NotAbsolute),
            ("*", NotAbsolute),
            ("repos", NotAbsolute),
            ("http://x/", NotAbsolute),
            ("/a/../b", DotSegment),
            ("/a/./b", DotSegment),
            ("/a/..", DotSegment),
            ("/a/%2e%2E/b", DotSegment),
            ("/a/.%2e", DotSegment),
            ("/a/..;x/b", DotSegment),
            ("/a/..%3B/b", DotSegment),
            ("/a/..%3bx", DotSegment),
            ("/a/%2e%2E%3b/b", DotSegment),
            ("/a/.%3B/b", DotSegment),
            ("/v1/..%3Fx", DotSegment),
            ("/v1/..%23", DotSegment),
            ("/v1/.%3f/b", DotSegment),
            ("/v1/..%3B%3Fx", DotSegment),
            ("//a", EmptySegment),
            ("/a//b", EmptySegment),
            ("/a//", EmptySegment),
            ("/a/;x/b", EmptySegment),
            ("/a/;x", EmptySegment),
            ("/a/%3Bx/b", EmptySegment),
            ("/a/%3b", EmptySegment),
            ("/a%2fb", HiddenSlash),
            ("/a%5Cb", HiddenSlash),
            ("/a\\b", HiddenSlash),
            ("/a%", BadPercent),
            ("/a%4", BadPercent),
            ("/a%zz", BadPercent),
            ("/a%+1", BadPercent),
            ("/%252e%252e/", EncodedTwice),
            ("/%25%32e", EncodedTwice),
            ("/%2525%32e", EncodedTwice),
            ("/a%00", BadByte),
            ("/a%0d%0aX", BadByte),
            ("/a b", BadByte),
            ("/a\u{e9}", BadByte),
            ("/a?b", BadByte),
            ("/a#b", BadByte),
        ] {
            assert_eq!(canonical(path), Err(why), "{path}");
        }
        assert_eq!(canonical(&format!("/{}", "a".repeat(LONGEST_PATH))), Err(TooLong));
        // The form counts: this one would be three times as long.
        assert_eq!(canonical(&format!("/{}", "\"".repeat(LONGEST_PATH / 2))), Err(TooLong));
    }
}
