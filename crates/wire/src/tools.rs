//! Functions that a caller offers to a command of a box, and what the command may say to one: a name and a piece of JSON.
//!
//! Trust: guest. Name and JSON of a call are chosen by an attacker, and go to programs of the caller. What is passed on is a
//! name that was offered, and a value that was read and is written anew: no two readers can take it for different things.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::limits::{MAX_TOOL_ANSWER, MAX_TOOL_INPUT, MAX_TOOL_NAME};

/// The variable that tells a command what it is offered: names, with commas between.
pub const TOOLS_VARIABLE: &str = "BLASTBOX_TOOLS";

/// The name of a function: a letter, then letters, digits, `_`, `-` and `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ToolName(String);

impl ToolName {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Text that is not the name of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a tool is named by a letter, then letters, digits, `_`, `-` and `.`: at most {MAX_TOOL_NAME} characters"
)]
pub struct BadToolName;

impl FromStr for ToolName {
    type Err = BadToolName;
    fn from_str(text: &str) -> Result<Self, BadToolName> {
        let clean = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        let begins = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
        if begins && text.len() <= MAX_TOOL_NAME && text.bytes().all(clean) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadToolName)
        }
    }
}

/// Why a piece of JSON is not passed on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadJson {
    /// It is too long.
    #[error("it has more than {most} bytes")]
    TooLong {
        /// How long it may be.
        most: usize,
    },
    /// It is none.
    #[error("it is not JSON, or lies too deep: line {line}, column {column}")]
    Malformed {
        /// Where.
        line: usize,
        /// Where in it.
        column: usize,
    },
}

/// Reads what a command says to a function. Bounded in length and in depth.
pub fn read_input(bytes: &[u8]) -> Result<Value, BadJson> {
    read(bytes, MAX_TOOL_INPUT)
}

/// Reads what a function gave back.
pub fn read_answer(bytes: &[u8]) -> Result<Value, BadJson> {
    read(bytes, MAX_TOOL_ANSWER)
}

fn read(bytes: &[u8], most: usize) -> Result<Value, BadJson> {
    if bytes.len() > most {
        return Err(BadJson::TooLong { most });
    }
    serde_json::from_slice(bytes)
        .map_err(|error| BadJson::Malformed { line: error.line(), column: error.column() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_could_be_a_path_a_list_or_an_option_is_none() {
        for bad in ["", "-x", "a,b", "a/b", "..", "a b", "a\n", "1a", "ä", &"a".repeat(MAX_TOOL_NAME + 1)] {
            assert_eq!(bad.parse::<ToolName>(), Err(BadToolName), "{bad}");
        }
        for good in ["a", "get_weather", "files.read-one", &"a".repeat(MAX_TOOL_NAME)] {
            assert!(good.parse::<ToolName>().is_ok(), "{good}");
        }
    }

    #[test]
    fn json_is_read_whole_or_not_at_all() {
        assert_eq!(read_input(b" {\"a\": [1, 2]} ").unwrap().to_string(), "{\"a\":[1,2]}");
        for bad in [&b""[..], b"{", b"{} {}", b"\xff", b"[1,]", b"NaN", b"1e999", "[".repeat(5000).as_bytes()]
        {
            assert!(matches!(read_input(bad), Err(BadJson::Malformed { .. })), "{bad:?}");
        }
        let long = format!("\"{}\"", "x".repeat(MAX_TOOL_INPUT));
        assert!(matches!(read_input(long.as_bytes()), Err(BadJson::TooLong { .. })));
        assert!(read_answer(long.as_bytes()).is_ok());
    }
}
