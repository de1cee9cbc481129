//! Percent-encoding, and queries made of it.

/// Undoes percent-encoding once. What is no escape stays as it is.
pub(super) fn percent_decoded(text: &str) -> String {
    String::from_utf8_lossy(&decode(text.as_bytes(), Plus::Stays)).into_owned()
}

/// The pairs of a query or a form, in order, decoded once.
pub(super) fn pairs(query: Option<&str>) -> Vec<(String, String)> {
    let decoded = |text: &str| String::from_utf8_lossy(&decode(text.as_bytes(), Plus::IsSpace)).into_owned();
    let parts = query.unwrap_or_default().split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(a, b)| (decoded(a), decoded(b)))
        .collect()
}

/// The value of a name, where it is there.
pub(super) fn value<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[derive(Debug, Clone, Copy)]
enum Plus {
    Stays,
    IsSpace,
}

fn decode(text: &[u8], plus: Plus) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, plus, after) {
            (b'%', _, &[high, low, ref tail @ ..]) => match (digit(high), digit(low)) {
                (Some(high), Some(low)) => {
                    out.push(high * 16 + low);
                    rest = tail;
                }
                _ => out.push(byte),
            },
            (b'+', Plus::IsSpace, _) => out.push(b' '),
            _ => out.push(byte),
        }
    }
    out
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_escape_stays_and_the_rest_is_undone_once() {
        assert_eq!(percent_decoded("a%2Fb%3Ac+d"), "a/b:c+d");
        assert_eq!(percent_decoded("100%, %zz, %4"), "100%, %zz, %4");
        assert_eq!(percent_decoded("%2525"), "%25");
        let pairs = pairs(Some("a=b+c&d=%26e%3D&f&=g"));
        assert_eq!(value(&pairs, "a"), Some("b c"));
        assert_eq!(value(&pairs, "d"), Some("&e="));
        assert_eq!(value(&pairs, "f"), Some(""));
        assert_eq!(value(&pairs, "x"), None);
    }
}
