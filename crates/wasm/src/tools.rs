//! Functions of the caller, as guests call them: a name and JSON out, JSON back. The guest waits meanwhile.
//!
//! Nothing of it is believed here, and nothing is read but its length: whoever started the worker looks at the name and the
//! JSON. What was not offered is not even asked for.

use blastbox_wire::limits::{HTTP_CALL, MAX_TOOL_CALLS, MAX_TOOL_INPUT, MAX_TOOL_NAME};
use wasmtime::AsContextMut;

use crate::streams::{Streams, Told};
use crate::wasi::{Guest, Host, pay};

/// The variable that says what a command is offered.
const VARIABLE: &[u8] = b"BLASTBOX_TOOLS=";
/// How an answer begins that is what the function gave, and one that says why it gave nothing.
const GOOD: u8 = b'+';
const BAD: u8 = b'-';

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) good: bool,
    /// JSON.
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn refusal(why: &str) -> Self {
        // Words of ours: nothing in them needs an escape.
        Self { good: false, bytes: format!("\"{why}\"").into_bytes() }
    }

    /// As a guest reads it: a sign, then JSON.
    pub(crate) fn signed(&self) -> Vec<u8> {
        let sign = if self.good { GOOD } else { BAD };
        [&[sign], self.bytes.as_slice()].concat()
    }
}

/// Whether a command is offered any.
pub(crate) fn offered(environment: &[Vec<u8>]) -> bool {
    environment.iter().any(|pair| pair.strip_prefix(VARIABLE).is_some_and(|names| !names.is_empty()))
}

/// Calls one for a guest that says its name, and waits. A request has a door of its own.
pub(crate) fn call_named(
    call: impl AsContextMut<Data = Guest>,
    tool: &[u8],
    input: &[u8],
) -> wasmtime::Result<Answer> {
    if tool == HTTP_CALL.as_bytes() { Ok(unknown()) } else { call_for(call, tool, input) }
}

/// Calls one for a guest, or has a request made, and waits. What is moved for it is its work.
pub(crate) fn call_for(
    mut call: impl AsContextMut<Data = Guest>,
    tool: &[u8],
    input: &[u8],
) -> wasmtime::Result<Answer> {
    let mut call = call.as_context_mut();
    let answer = ask(&call.data().host, tool, input).map_err(wasmtime::Error::new)?;
    let moved = tool.len().saturating_add(input.len()).saturating_add(answer.bytes.len());
    pay(&mut call, u64::try_from(moved).unwrap_or(u64::MAX))?;
    Ok(answer)
}

fn ask(host: &Host, tool: &[u8], input: &[u8]) -> Result<Answer, Told> {
    let request = tool == HTTP_CALL.as_bytes();
    match &host.streams {
        Some(streams) if (request && host.http) || (!request && host.tools) => call(streams, tool, input),
        _ if request => {
            Ok(Answer::refusal("no-network: no host is allowed by the policy of this box (network.allow)"))
        }
        _ => Ok(none()),
    }
}

/// Calls one, and waits.
fn call(streams: &Streams, tool: &[u8], input: &[u8]) -> Result<Answer, Told> {
    let Ok(tool) = std::str::from_utf8(tool) else { return Ok(unknown()) };
    if tool.len() > MAX_TOOL_NAME {
        return Ok(unknown());
    }
    if input.len() > MAX_TOOL_INPUT {
        return Ok(Answer::refusal("too_large: what it is given is too long, 60 KiB is the most"));
    }
    match streams.call(tool, input, MAX_TOOL_CALLS)? {
        Some(answer) => Ok(answer),
        None => Ok(Answer::refusal("too_many: this command has made as many calls as it may")),
    }
}

fn unknown() -> Answer {
    Answer::refusal("there is no such tool")
}

/// What is said where nothing is offered.
fn none() -> Answer {
    Answer::refusal("no tools are offered to this command")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_stands_in_the_environment_and_nowhere_else() {
        assert!(offered(&[b"A=b".to_vec(), b"BLASTBOX_TOOLS=add".to_vec()]));
        assert!(!offered(&[b"BLASTBOX_TOOLS=".to_vec(), b"BLASTBOX_TOOL=add".to_vec()]));
    }

    #[test]
    fn an_answer_says_by_its_first_byte_what_it_is() {
        assert_eq!(none().signed(), b"-\"no tools are offered to this command\"");
        assert_eq!(Answer { good: true, bytes: b"7".to_vec() }.signed(), b"+7");
    }
}
