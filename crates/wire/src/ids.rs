//! Names of things. An id that exists is safe as a file name, a cgroup name and a host name.

use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "bx_";
const TAIL: usize = 20;
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// The name of one box, such as `bx_c3f7k2m5q6r7s2t3u4v5`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoxId(String);

/// The text is not the name of a box.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a box id: expected `bx_` and 20 letters or digits in lower case")]
pub struct BadBoxId;

impl BoxId {
    /// A name made from 100 bits of the given randomness.
    #[must_use]
    pub fn from_random(random: [u8; TAIL]) -> Self {
        Self(named(PREFIX, random))
    }

    /// The whole name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name in the form that the kernel accepts as a host name (no underscore).
    #[must_use]
    pub fn as_host_name(&self) -> String {
        self.0.replace('_', "-")
    }
}

impl FromStr for BoxId {
    type Err = BadBoxId;
    fn from_str(text: &str) -> Result<Self, BadBoxId> {
        is_named(PREFIX, text).then(|| Self(text.to_owned())).ok_or(BadBoxId)
    }
}

impl fmt::Display for BoxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BoxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(feature = "text")]
crate::event::hex::as_text!(BoxId);

/// A name of 100 random bits behind this prefix.
pub(crate) fn named(prefix: &str, random: [u8; TAIL]) -> String {
    let tail = random.iter().filter_map(|byte| ALPHABET.get(usize::from(byte & 31))).map(|&c| char::from(c));
    prefix.chars().chain(tail).collect()
}

/// Whether this could be one.
pub(crate) fn is_named(prefix: &str, text: &str) -> bool {
    let clean = |tail: &str| tail.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    text.strip_prefix(prefix).is_some_and(|tail| tail.len() == TAIL && clean(tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_made_from_randomness_parses_back() {
        let id = BoxId::from_random([7; TAIL]);
        assert_eq!(id.as_str().parse::<BoxId>().unwrap(), id);
        assert!(!id.as_host_name().contains('_'));
    }

    #[test]
    fn an_id_that_could_leave_its_directory_does_not_parse() {
        for bad in [
            "",
            "bx_",
            "bx_../../../../etc/pas",
            "bx_ABCDEFGHIJKLMNOPQRST",
            "bx_aaaaaaaaaaaaaaaaaaaa/",
            "bx_a",
        ] {
            assert_eq!(bad.parse::<BoxId>(), Err(BadBoxId), "{bad}");
        }
        assert!("bx_aaaaaaaaaaaaaaaaaaa2".parse::<BoxId>().is_ok());
    }
}
