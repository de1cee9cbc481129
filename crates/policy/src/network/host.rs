//! The one type through which a name enters the decision.
//!
//! Trust: guest, as well as the operator. DNS questions, SNI, `Host`, `:authority`, CONNECT and SOCKS all make a
//! [`Host`] or nothing, so two readers cannot disagree about which name was meant.

use std::{fmt, str::FromStr};

/// The longest name, without its final dot.
const LONGEST: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A host name in its one spelling: lower-case letters, digits and hyphens in labels, without the final dot.
///
/// Never an address: a name whose last label reads as a number (`1`, `0x7f`) is refused, whatever comes before it,
/// because somebody's resolver would take it for one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Host(Box<str>);

/// Text that is not a host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadHost {
    /// Nothing, or nothing between two dots.
    #[error("has an empty label")]
    EmptyLabel,
    /// Longer than DNS carries.
    #[error("is longer than a host name can be (253 characters, 63 in a label)")]
    TooLong,
    /// A byte that is not a letter, digit or hyphen of ASCII: also space, NUL, percent, `@`, `_` and letters that
    /// only look like ASCII. International names are written in their `xn--` form.
    #[error("has a character that is not an ASCII letter, digit, hyphen or dot")]
    Character,
    /// A label that begins or ends with a hyphen.
    #[error("has a label that begins or ends with a hyphen")]
    Hyphen,
    /// The last label is a number: some programs read such a name as an address.
    #[error("ends in a number, as an address does")]
    Number,
}

impl Host {
    /// Reads bytes of whatever origin. One final dot is permitted and dropped, capital letters become small.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, BadHost> {
        let name = bytes.strip_suffix(b".").unwrap_or(bytes);
        if name.len() > LONGEST {
            return Err(BadHost::TooLong);
        }
        let mut text = String::with_capacity(name.len());
        for byte in name {
            match byte {
                b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' => text.push(char::from(*byte)),
                b'A'..=b'Z' => text.push(char::from(byte.to_ascii_lowercase())),
                _ => return Err(BadHost::Character),
            }
        }
        let mut last = "";
        for label in text.split('.') {
            match label {
                "" => return Err(BadHost::EmptyLabel),
                _ if label.len() > LONGEST_LABEL => return Err(BadHost::TooLong),
                _ if label.starts_with('-') || label.ends_with('-') => return Err(BadHost::Hyphen),
                _ => last = label,
            }
        }
        if reads_as_number(last) {
            return Err(BadHost::Number);
        }
        Ok(Self(text.into_boxed_str()))
    }

    /// The name in its one spelling.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The labels, from the left.
    pub fn labels(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('.')
    }

    /// Whether it is a name of whoever asks, wherever that is: `localhost`, everything under it (RFC 6761), and what systems call
    /// it besides.
    #[must_use]
    pub fn is_local(&self) -> bool {
        self.labels().next_back() == Some("localhost")
            || ["localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback"]
                .contains(&self.as_str())
    }

    /// Whether this name has at least one whole label before `apex`. A name is not under itself.
    #[must_use]
    pub fn is_under(&self, apex: &Self) -> bool {
        self.0.strip_suffix(apex.as_str()).is_some_and(|front| front.len() > 1 && front.ends_with('.'))
    }
}

/// Decimal digits, or `0x` and hexadecimal ones: what `inet_aton` and browsers take for a part of an address.
fn reads_as_number(label: &str) -> bool {
    let hex = label.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    hex || label.bytes().all(|b| b.is_ascii_digit())
}

impl FromStr for Host {
    type Err = BadHost;
    fn from_str(text: &str) -> Result<Self, BadHost> {
        Self::from_bytes(text.as_bytes())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_has_one_spelling() {
        for spelling in ["api.example.com", "API.Example.COM", "api.example.com."] {
            assert_eq!(spelling.parse::<Host>().unwrap().as_str(), "api.example.com", "{spelling}");
        }
    }

    #[test]
    fn tricks_are_not_names() {
        for (trick, why) in [
            ("", BadHost::EmptyLabel),
            (".", BadHost::EmptyLabel),
            ("a..b", BadHost::EmptyLabel),
            (".a.b", BadHost::EmptyLabel),
            ("a.b..", BadHost::EmptyLabel),
            ("a.example.com\0.evil.test", BadHost::Character),
            ("a.example.com%00.evil.test", BadHost::Character),
            ("a.example.com%2eevil.test", BadHost::Character),
            ("a.example.com @evil.test", BadHost::Character),
            ("user@a.example.com", BadHost::Character),
            ("a.example.com:443", BadHost::Character),
            ("a.example.com/", BadHost::Character),
            ("a_b.example.com", BadHost::Character),
            ("ехample.com", BadHost::Character),
            ("example。com", BadHost::Character),
            ("fe80::1%eth0", BadHost::Character),
            ("[::1]", BadHost::Character),
            ("-a.example.com", BadHost::Hyphen),
            ("a-.example.com", BadHost::Hyphen),
            ("127.0.0.1", BadHost::Number),
            ("127.1", BadHost::Number),
            ("2130706433", BadHost::Number),
            ("0x7f000001", BadHost::Number),
            ("0x7f.1", BadHost::Number),
            ("0177.0.0.01", BadHost::Number),
            ("a.0x", BadHost::Number),
            ("1.2.3.4.", BadHost::Number),
        ] {
            assert_eq!(trick.parse::<Host>(), Err(why), "{trick:?}");
        }
        assert_eq!("a".repeat(64).parse::<Host>(), Err(BadHost::TooLong));
        assert_eq!(["a"; 128].join(".").parse::<Host>(), Err(BadHost::TooLong));
        assert!([["a"; 126].join(".").as_str(), "b"].join(".").parse::<Host>().is_ok());
    }

    #[test]
    fn names_of_the_host_itself_are_known_and_names_like_them_are_not() {
        let local = |name: &str| name.parse::<Host>().unwrap().is_local();
        for name in ["localhost", "LocalHost.", "a.b.localhost", "ip6-localhost", "localhost.localdomain"] {
            assert!(local(name), "{name}");
        }
        for name in ["localhost.example.com", "notlocalhost", "localdomain"] {
            assert!(!local(name), "{name}");
        }
    }

    #[test]
    fn under_means_a_whole_label_more() {
        let apex: Host = "example.com".parse().unwrap();
        let under = |name: &str| name.parse::<Host>().unwrap().is_under(&apex);
        assert!(under("a.example.com") && under("a.b.example.com"));
        assert!(!under("example.com") && !under("badexample.com") && !under("example.com.evil.test"));
    }
}
