//! The name of a guest of the tier `wasm`, as it lies on the host's shelf.

use std::{fmt, str::FromStr};

use crate::words::clip;

/// Longest name. As the worker has it.
const LONGEST: usize = 80;

/// A guest's name: a word of a command line, and the name of a file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GuestName(String);

impl GuestName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for GuestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Text that is no guest's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no name of a guest; expected letters, digits, - and _, at most 80, as `blastbox doctor` lists them"
)]
pub struct BadGuest(String);

impl FromStr for GuestName {
    type Err = BadGuest;
    fn from_str(text: &str) -> Result<Self, BadGuest> {
        let clean = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if text.is_empty() || text.len() > LONGEST || !text.bytes().all(clean) {
            return Err(BadGuest(clip(text)));
        }
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word_and_never_a_path() {
        for good in ["js", "python-data", "My_tool2", &"x".repeat(80)] {
            assert_eq!(good.parse::<GuestName>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "tool.wasm", "a b", "a\n", "é", &"x".repeat(81)] {
            assert!(bad.parse::<GuestName>().unwrap_err().to_string().contains("letters, digits"), "{bad}");
        }
    }
}
