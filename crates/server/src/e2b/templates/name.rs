//! What templates, tags and builds are called.

use rustix::rand::{GetRandomFlags, getrandom};

use crate::e2b::no::{No, echo};

/// The tag that is meant where none is named.
pub(super) const DEFAULT_TAG: &str = "default";
const MOST: usize = 128;

/// A template by its name, or a tag of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::e2b) struct Named {
    pub(in crate::e2b) name: String,
    pub(super) tag: Option<String>,
}

impl Named {
    /// `name` or `name:tag`.
    pub(in crate::e2b) fn parse(text: &str) -> Result<Self, No> {
        let text = text.trim().to_ascii_lowercase();
        if text.contains('/') {
            return Err(No::bad(format!(
                "'{}': templates have no namespace here; every key has its own",
                echo(&text)
            )));
        }
        let (name, tag) = text.split_once(':').map_or((text.as_str(), None), |(name, tag)| (name, Some(tag)));
        if !is_plain(name) || tag.is_some_and(|tag| !is_plain(tag)) {
            return Err(No::bad(format!(
                "'{}' is no name of a template: 1 to {MOST} of a-z, 0-9, `-`, `_` and `.`, and perhaps `:` and a tag",
                echo(&text)
            )));
        }
        Ok(Self { name: name.to_owned(), tag: tag.map(ToOwned::to_owned) })
    }

    /// The tag that is meant.
    pub(in crate::e2b) fn tag(&self) -> &str {
        self.tag.as_deref().unwrap_or(DEFAULT_TAG)
    }
}

/// A tag alone.
pub(super) fn tag(text: &str) -> Result<String, No> {
    let text = text.trim().to_ascii_lowercase();
    match is_plain(&text) {
        true => Ok(text),
        false => {
            Err(No::bad(format!("'{}' is no tag: 1 to {MOST} of a-z, 0-9, `-`, `_` and `.`", echo(&text))))
        }
    }
}

fn is_plain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
    let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    begins && text.len() <= MOST && text.bytes().all(plain)
}

/// A new id of a template: twenty letters and digits, as E2B's have.
pub(super) fn new_template() -> Option<String> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
    let random: [u8; 20] = random()?;
    Some(
        random
            .iter()
            .filter_map(|byte| LETTERS.get(usize::from(byte & 31)))
            .map(|b| char::from(*b))
            .collect(),
    )
}

/// A new id of a build: SDKs read it as a UUID.
pub(super) fn new_build() -> Option<String> {
    let mut random: [u8; 16] = random()?;
    let [_, _, _, _, _, _, version, _, variant, ..] = &mut random;
    *version = (*version & 0x0f) | 0x40;
    *variant = (*variant & 0x3f) | 0x80;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default().to_owned();
    Some([part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-"))
}

fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0_u8; N];
    (getrandom(&mut bytes, GetRandomFlags::empty()).ok()? == N).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_have_perhaps_a_tag() {
        let named = Named::parse(" My-Env:V1.0 ").unwrap();
        assert_eq!((named.name.as_str(), named.tag()), ("my-env", "v1.0"));
        assert_eq!(Named::parse("my_env").unwrap().tag(), DEFAULT_TAG);
        let long = "a".repeat(129);
        for bad in ["", ":x", "a:", "team/a", "a b", "..", "-a", "a:b:c", "a\u{0}b", &long] {
            assert_eq!(Named::parse(bad).unwrap_err().status(), 400, "{bad}");
        }
        assert!(tag("v1").is_ok() && tag("a:b").is_err());
    }

    #[test]
    fn ids_are_as_clients_read_them() {
        let (template, build) = (new_template().unwrap(), new_build().unwrap());
        assert!(
            template.len() == 20 && template.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
        );
        let lengths: Vec<usize> = build.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(build.get(14..15) == Some("4") && build != new_build().unwrap());
    }
}
