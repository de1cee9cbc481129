//! What images are called: a name, a name with the digest that it must have, or a digest alone.

use std::fmt;
use std::str::FromStr;

use blastbox_wire::event::Hash;

/// Longest name.
const MOST: usize = 128;

/// The name of an image in the store, such as `base` or `python:3.12`. Safe as the name of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageName(String);

/// The text is not a name that an image can have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} cannot be the name of an image: expected 1 to {MOST} of a-z, 0-9, `.`, `_`, `-` and `:`, beginning with \
     a letter or digit, and not `host`"
)]
pub struct BadName {
    given: String,
}

impl ImageName {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ImageName {
    type Err = BadName;
    fn from_str(text: &str) -> Result<Self, BadName> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let begins = text.bytes().next().is_some_and(plain);
        let goes_on = text.bytes().all(|byte| plain(byte) || b"._-:".contains(&byte));
        // `sha256:…` would read as a digest, `host` as the view of this host.
        let taken = text == "host" || text.starts_with("sha256:");
        if begins && goes_on && !taken && text.len() <= MOST {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadName { given: text.chars().take(MOST).collect() })
        }
    }
}

impl fmt::Display for ImageName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Which image is meant: `NAME`, `NAME@sha256:…` or `sha256:…`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRef {
    /// Its name, if it was named.
    pub name: Option<ImageName>,
    /// The content that it must have, if that was said.
    pub digest: Option<Hash>,
}

/// The text says neither a name nor a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRef {
    /// The name.
    #[error(transparent)]
    Name(#[from] BadName),
    /// The digest.
    #[error("{given:?} is no digest: expected `sha256:` and 64 hexadecimal digits in lower case")]
    Digest {
        /// What was given.
        given: String,
    },
}

impl FromStr for ImageRef {
    type Err = BadRef;
    fn from_str(text: &str) -> Result<Self, BadRef> {
        let digest = |given: &str| {
            given.parse().map_err(|_| BadRef::Digest { given: given.chars().take(MOST).collect() })
        };
        match text.split_once('@') {
            Some((name, wanted)) => Ok(Self { name: Some(name.parse()?), digest: Some(digest(wanted)?) }),
            None if text.starts_with("sha256:") => Ok(Self { name: None, digest: Some(digest(text)?) }),
            None => Ok(Self { name: Some(text.parse()?), digest: None }),
        }
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, &self.digest) {
            (Some(name), Some(digest)) => write!(f, "{name}@{digest}"),
            (Some(name), None) => write!(f, "{name}"),
            (None, Some(digest)) => write!(f, "{digest}"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_directory_or_read_as_something_else() {
        for good in ["base", "python:3.12", "a", "0", "x_y-z.1"] {
            assert_eq!(good.parse::<ImageName>().unwrap().as_str(), good);
        }
        let long = "a".repeat(MOST + 1);
        for bad in ["", ".", "..", "../x", "a/b", ".hidden", "-x", "Host", "host", "sha256:ab", "a b", &long]
        {
            assert!(bad.parse::<ImageName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_reference_is_a_name_a_digest_or_both() {
        let digest = format!("sha256:{}", "ab".repeat(32));
        let both = format!("base@{digest}");
        for text in ["base", &digest, &both] {
            assert_eq!(text.parse::<ImageRef>().unwrap().to_string(), *text);
        }
        for bad in ["base@", "@", "base@sha256:ab", "sha256:ab", &both.to_uppercase()] {
            assert!(bad.parse::<ImageRef>().is_err(), "{bad}");
        }
    }
}
