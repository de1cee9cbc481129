//! Functions that a caller offers to a command of a box, and what the command may say to one: a name and a piece of JSON.
//!
//! Trust: guest. Name and JSON of a call are chosen by an attacker, and go to programs of the caller. What is passed on is a
//! name that was offered, and a value that was read and is written anew: no two readers can take it for different things. A
//! number is passed on as it was said, or not at all.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

use crate::limits::{MAX_TOOL_ANSWER, MAX_TOOL_DEPTH, MAX_TOOL_INPUT, MAX_TOOL_NAME};

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
    #[error("it is not JSON: line {line}, column {column}")]
    Malformed {
        /// Where.
        line: usize,
        /// Where in it.
        column: usize,
    },
    /// Lists and objects lie too deep in each other.
    #[error("it has more than {MAX_TOOL_DEPTH} lists and objects in each other")]
    TooDeep,
    /// A whole number that would become another one.
    #[error("it has a whole number that does not fit into 64 bits; say it as text")]
    Number,
}

/// Reads what a command says to a function.
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
    look_over(bytes)?;
    serde_json::from_slice(bytes)
        .map_err(|error| BadJson::Malformed { line: error.line(), column: error.column() })
}

/// Looks for what a reader would take and change, or refuse later. Of bytes that are no JSON it may say anything.
fn look_over(bytes: &[u8]) -> Result<(), BadJson> {
    let (mut depth, mut rest) = (0_usize, bytes);
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        match first {
            b'"' => rest = behind_text(behind),
            b'[' | b'{' if depth >= MAX_TOOL_DEPTH => return Err(BadJson::TooDeep),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                let more = behind.iter().take_while(|byte| is_part(byte)).count();
                let said = bytes.get(bytes.len() - behind.len() - 1..bytes.len() - behind.len() + more);
                if said.is_some_and(|said| !fits(said)) {
                    return Err(BadJson::Number);
                }
                rest = behind.get(more..).unwrap_or_default();
            }
            _ => {}
        }
    }
    Ok(())
}

/// What lies behind the end of a text.
fn behind_text(bytes: &[u8]) -> &[u8] {
    let mut escaped = false;
    let end = bytes.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    });
    end.and_then(|end| bytes.get(end + 1..)).unwrap_or_default()
}

/// Whether a number stays what it is: one with a fraction or an exponent is nobody's exact one.
fn fits(number: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(number) else { return true };
    let whole = text.strip_prefix('-').unwrap_or(text);
    let is_whole = !whole.is_empty() && whole.bytes().all(|byte| byte.is_ascii_digit());
    !is_whole || text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok()
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
        for bad in [&b""[..], b"{", b"{} {}", b"\xff", b"[1,]", b"NaN", b"1e999", b"-"] {
            assert!(matches!(read_input(bad), Err(BadJson::Malformed { .. })), "{bad:?}");
        }
        assert_eq!(read_input("[".repeat(5000).as_bytes()), Err(BadJson::TooDeep));
        let long = format!("\"{}\"", "x".repeat(MAX_TOOL_INPUT));
        assert!(matches!(read_input(long.as_bytes()), Err(BadJson::TooLong { .. })));
        assert!(read_answer(long.as_bytes()).is_ok());
    }

    #[test]
    fn a_number_is_passed_on_as_it_was_said_or_not_at_all() {
        for same in
            ["18446744073709551615", "-9223372036854775808", "31.245270191439438", "5e-324", "0", "[1,-2]"]
        {
            assert_eq!(read_input(same.as_bytes()).unwrap().to_string(), same);
        }
        for bad in [
            "18446744073709551616",
            "-9223372036854775809",
            "[1, 100000000000000000000]",
            r#"{"a\"[": 99999999999999999999}"#,
        ] {
            assert_eq!(read_input(bad.as_bytes()), Err(BadJson::Number), "{bad}");
        }
        // Digits in a text are text.
        let text = r#"["99999999999999999999", "\\\"99999999999999999999", {"99999999999999999999": 1e20}]"#;
        assert!(read_input(text.as_bytes()).is_ok());
    }

    #[test]
    fn what_is_passed_on_can_be_read_by_whoever_wraps_it() {
        let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read_input(deep(MAX_TOOL_DEPTH).as_bytes()).is_ok());
        assert_eq!(read_input(deep(MAX_TOOL_DEPTH + 1).as_bytes()), Err(BadJson::TooDeep));
        let wide = format!("[{}[]]", "[],".repeat(1000));
        assert!(read_input(wide.as_bytes()).is_ok());
    }
}
