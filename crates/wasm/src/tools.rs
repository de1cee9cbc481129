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
    // It was said all the same, and is paid for: one that is refused is no way to have bytes moved for nothing.
    if tool == HTTP_CALL.as_bytes() {
        paid(call, tool, input, unknown())
    } else {
        call_for(call, tool, input)
    }
}

/// Calls one for a guest, or has a request made, and waits. What is moved for it is its work.
pub(crate) fn call_for(
    call: impl AsContextMut<Data = Guest>,
    tool: &[u8],
    input: &[u8],
) -> wasmtime::Result<Answer> {
    let answer = ask(&call.as_context().data().host, tool, input).map_err(wasmtime::Error::new)?;
    paid(call, tool, input, answer)
}

fn paid(
    call: impl AsContextMut<Data = Guest>,
    tool: &[u8],
    input: &[u8],
    answer: Answer,
) -> wasmtime::Result<Answer> {
    let moved = tool.len().saturating_add(input.len()).saturating_add(answer.bytes.len());
    pay(call, u64::try_from(moved).unwrap_or(u64::MAX))?;
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
    use std::sync::Weak;

    use wasmtime::{Store, Trap};

    use super::*;
    use crate::budget::Budget;
    use crate::engine::{MODULE, Metering, Purpose, engine};
    use crate::wasi::Limiter;

    #[test]
    fn what_is_said_to_a_function_is_paid_for_whether_or_not_there_is_one() {
        let engine = engine(Purpose::Compile, Metering::Fuel).unwrap();
        let host = Host { metered: true, ..Host::alone(false, false) };
        let limiter = Limiter::new(Budget::new(1 << 20), Weak::new(), 0, MODULE);
        let mut store = Store::new(&engine, Guest { memory: None, limiter, host });
        for tool in [HTTP_CALL, "add"] {
            store.set_fuel(10_000).unwrap();
            let answer = call_named(&mut store, tool.as_bytes(), &[b' '; 5_000]).unwrap();
            let moved = tool.len() + 5_000 + answer.bytes.len();
            assert!(!answer.good);
            assert_eq!(store.get_fuel().unwrap(), 10_000 - u64::try_from(moved).unwrap(), "{tool}");
            let broken = call_named(&mut store, tool.as_bytes(), &[b' '; 5_000]).unwrap_err();
            assert_eq!(broken.downcast_ref(), Some(&Trap::OutOfFuel), "{tool}");
        }
    }

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
