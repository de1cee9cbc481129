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
        let tail =
            random.iter().filter_map(|byte| ALPHABET.get(usize::from(byte & 31))).map(|&c| char::from(c));
        Self(PREFIX.chars().chain(tail).collect())
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
        let tail = text.strip_prefix(PREFIX).ok_or(BadBoxId)?;
        let clean = tail.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if tail.len() == TAIL && clean { Ok(Self(text.to_owned())) } else { Err(BadBoxId) }
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
impl serde::Serialize for BoxId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

#[cfg(feature = "text")]
impl<'de> serde::Deserialize<'de> for BoxId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
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
