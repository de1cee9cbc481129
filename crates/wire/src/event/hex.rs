//! Bytes that stand in a ledger as text, each with one spelling: `sha256:<hex>`, `ed25519:<hex>`, `lg_<letters>`.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::ids;

/// Text that is not what it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {what}: expected {form}")]
pub struct BadHex {
    what: &'static str,
    form: &'static str,
}

macro_rules! hex {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $prefix:literal, $what:literal, $form:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// From its bytes.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// Its bytes.
            #[must_use]
            pub const fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                // Digit by digit: this stands on the path of every record, where `write!` per byte is felt.
                let digit = |value: u8| char::from(if value < 10 { b'0' + value } else { b'a' - 10 + value });
                let mut text = String::with_capacity($bytes * 2);
                for byte in self.0 {
                    text.push(digit(byte >> 4));
                    text.push(digit(byte & 15));
                }
                f.write_str(&text)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadHex;
            fn from_str(text: &str) -> Result<Self, BadHex> {
                let bytes = text.strip_prefix($prefix).and_then(|hex| unhex(hex.as_bytes()));
                bytes.map(Self).ok_or(BadHex { what: $what, form: $form })
            }
        }

        as_text!($name);
    };
}

macro_rules! as_text {
    ($name:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(from)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use as_text;

hex!(
    /// A SHA-256 digest: of a record, of an image, of a command line.
    Hash, 32, "sha256:", "a digest", "`sha256:` and 64 hexadecimal digits in lower case"
);
hex!(
    /// The public half of a ledger's signing key.
    PublicKey, 32, "ed25519:", "a public key", "`ed25519:` and 64 hexadecimal digits in lower case"
);
hex!(
    /// A signature under a checkpoint.
    Signature, 64, "ed25519:", "a signature", "`ed25519:` and 128 hexadecimal digits in lower case"
);

impl Hash {
    /// What the first record of a ledger follows.
    pub const NOTHING: Self = Self([0; 32]);

    /// The digest of the pieces, one after the other.
    #[must_use]
    pub fn of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new();
        pieces.into_iter().for_each(|piece| hasher.update(piece));
        Self(hasher.finalize().into())
    }

    /// The digest of a command line: program and arguments, each followed by a zero byte, which none of them can hold.
    #[must_use]
    pub fn of_command(arguments: &[Vec<u8>]) -> Self {
        Self::of(arguments.iter().flat_map(|argument| [argument.as_slice(), b"\0"]))
    }
}

/// Lower case only, so that a value has one spelling.
fn unhex<const N: usize>(hex: &[u8]) -> Option<[u8; N]> {
    let (pairs, odd) = hex.as_chunks::<2>();
    if pairs.len() != N || !odd.is_empty() {
        return None;
    }
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(bytes)
}

/// The name of one ledger, such as `lg_c3f7k2m5q6r7s2t3u4v5`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LedgerId(String);

impl LedgerId {
    const PREFIX: &'static str = "lg_";

    /// A name made from 100 bits of the given randomness.
    #[must_use]
    pub fn from_random(random: [u8; 20]) -> Self {
        Self(ids::named(Self::PREFIX, random))
    }
}

impl FromStr for LedgerId {
    type Err = BadHex;
    fn from_str(text: &str) -> Result<Self, BadHex> {
        let bad = BadHex { what: "a ledger's name", form: "`lg_` and 20 letters or digits in lower case" };
        ids::is_named(Self::PREFIX, text).then(|| Self(text.to_owned())).ok_or(bad)
    }
}

impl fmt::Display for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LedgerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

as_text!(LedgerId);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_has_one_spelling() {
        let hash = Hash::of([b"abc".as_slice()]);
        let text = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(hash.to_string(), text);
        assert_eq!(text.parse(), Ok(hash));
        for bad in [&text[7..], &text[..70], &format!("{text}0"), &text.to_uppercase(), "", "sha256:é"] {
            assert!(bad.parse::<Hash>().is_err(), "{bad}");
        }
    }

    #[test]
    fn where_one_argument_ends_and_the_next_begins_is_part_of_the_digest() {
        let digest = |words: &[&str]| {
            Hash::of_command(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
        };
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_ne!(digest(&["a"]), digest(&["a", ""]));
    }

    #[test]
    fn the_name_of_a_ledger_reads_back_and_cannot_leave_its_directory() {
        let name = LedgerId::from_random([255; 20]);
        assert_eq!(name.to_string().parse(), Ok(name));
        assert!("lg_../../../../etc/pas".parse::<LedgerId>().is_err());
    }
}
