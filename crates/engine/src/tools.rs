//! Functions that the caller offers to a command: what of a guest's call is passed on, and what goes back. No I/O.
//!
//! The guest says a name and bytes. Only a name that was offered and a value that was read reach the caller; everything else
//! is answered here. A command waits for each answer, so it has one call open at most: whatever says otherwise lies.

use blastbox_wire::agent::{Exit, HostFrame};
use blastbox_wire::limits::{HTTP_CALL, MAX_TOOL_ANSWER, MAX_TOOL_CALLS};
use blastbox_wire::tools::{ToolName, read_input};
use serde_json::Value;

use crate::outlet::ExecEnd;

/// A call of a function that was offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Its number in the command, from 1.
    pub call: u32,
    /// The function.
    pub tool: ToolName,
    /// What it is given.
    pub input: Value,
}

/// What came of a call: what the function gave, or why it gave nothing.
pub type ToolAnswer = Result<Value, String>;

/// The answer as the command hears it. One that is too long is a failure.
pub(crate) fn frame(exec: u32, call: u32, answer: &ToolAnswer) -> HostFrame {
    let good = answer.is_ok();
    let text = match answer {
        Ok(value) => value.to_string(),
        Err(why) => Value::from(why.as_str()).to_string(),
    };
    if text.len() <= MAX_TOOL_ANSWER {
        return HostFrame::Answer { exec, call, good, bytes: text.into_bytes() };
    }
    let why = format!("its answer has more than {MAX_TOOL_ANSWER} bytes");
    HostFrame::Answer { exec, call, good: false, bytes: Value::from(why).to_string().into_bytes() }
}

/// What became of a guest's word.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// It goes to the caller.
    Pass(ToolCall),
    /// It is a request for the box's gateway.
    Fetch,
    /// It is answered at once.
    Refuse(String),
}

/// What one command is offered, and how far it is with it. By default it is one of an agent: those know no calls and count no
/// work, so whatever says otherwise lies.
#[derive(Debug, Default)]
pub(crate) struct Offer {
    /// `None` where commands cannot call.
    tools: Option<Vec<ToolName>>,
    /// Work that it may do, where that is counted.
    fuel: Option<u64>,
    /// Whether requests are made for it.
    http: bool,
    made: u32,
    open: Option<(u32, ToolName)>,
    /// A request that is under way.
    fetching: Option<u32>,
}

impl Offer {
    /// Of a command that can call: these functions. And what it may do of the work that is counted.
    pub(crate) fn of(tools: Vec<ToolName>, fuel: Option<u64>) -> Self {
        Self { tools: Some(tools), fuel, ..Self::default() }
    }

    /// The same, of a command for which requests are made or not.
    pub(crate) fn with_http(self, http: bool) -> Self {
        Self { http, ..self }
    }

    /// Hears how it ended. An error: the agent lies.
    pub(crate) fn over(&self, end: &ExecEnd) -> Result<(), &'static str> {
        let ExecEnd::Exited { exit, usage } = end else { return Ok(()) };
        match (self.fuel, usage.fuel) {
            (None, None) if *exit != Exit::FuelSpent => Ok(()),
            (None, _) => Err("work that nobody counts"),
            (Some(most), Some(used)) if used > most => Err("more work than a command may do"),
            (Some(_), _) => Ok(()),
        }
    }

    /// Hears a call. An error: the agent lies.
    pub(crate) fn hear(&mut self, call: u32, tool: &str, input: &[u8]) -> Result<Heard, &'static str> {
        let Some(tools) = &self.tools else { return Err("a call where commands cannot call") };
        if self.open.is_some() || self.fetching.is_some() {
            return Err("a call while another one waits");
        }
        if self.made.checked_add(1) != Some(call) {
            return Err("a call out of turn");
        }
        if call > MAX_TOOL_CALLS {
            return Err("more calls than a command may make");
        }
        self.made = call;
        if tool == HTTP_CALL {
            if !self.http {
                return Err("a request where commands have none made");
            }
            self.fetching = Some(call);
            return Ok(Heard::Fetch);
        }
        let Some(tool) = tools.iter().find(|offered| offered.as_str() == tool) else {
            return Ok(Heard::Refuse("there is no such tool".to_owned()));
        };
        match read_input(input) {
            Ok(input) => {
                self.open = Some((call, tool.clone()));
                Ok(Heard::Pass(ToolCall { call, tool: tool.clone(), input }))
            }
            Err(bad) => Ok(Heard::Refuse(format!("what it is given cannot be passed on: {bad}"))),
        }
    }

    /// A request is answered. `false`: it is not under way, any more or at all.
    pub(crate) fn fetched(&mut self, call: u32) -> bool {
        self.fetching.take_if(|open| *open == call).is_some()
    }

    /// Somebody answers a call, of this function. `None`: it is not open, any more or at all.
    pub(crate) fn close(&mut self, call: u32) -> Option<ToolName> {
        self.open.take_if(|(open, _)| *open == call).map(|(_, tool)| tool)
    }
}

#[cfg(test)]
mod tests {
    use blastbox_wire::agent::Usage;

    use super::*;

    fn offer() -> Offer {
        Offer::of(vec!["add".parse().unwrap()], None)
    }

    #[test]
    fn only_what_was_offered_is_passed_on_and_only_as_json() {
        let mut offer = offer();
        assert!(matches!(offer.hear(1, "rm", b"{}"), Ok(Heard::Refuse(_))));
        assert!(matches!(offer.hear(2, "add", b"{"), Ok(Heard::Refuse(_))));
        let Ok(Heard::Pass(passed)) = offer.hear(3, "add", b"[1, 2]") else { panic!() };
        assert_eq!(
            (passed.call, passed.tool.as_str(), passed.input.to_string().as_str()),
            (3, "add", "[1,2]")
        );
    }

    #[test]
    fn a_second_call_while_one_waits_and_a_number_out_of_turn_are_lies() {
        let mut offer = offer();
        assert!(offer.hear(2, "add", b"1").is_err() && offer.hear(0, "add", b"1").is_err());
        assert!(offer.hear(1, "add", b"1").is_ok());
        assert!(offer.hear(2, "add", b"1").is_err());
        assert_eq!(offer.close(2), None);
        assert_eq!(offer.close(1).unwrap().as_str(), "add");
        assert_eq!(offer.close(1), None);
        assert!(offer.hear(2, "add", b"1").is_ok());
    }

    #[test]
    fn a_request_is_one_call_among_others_and_a_lie_where_none_are_made() {
        assert!(offer().hear(1, HTTP_CALL, b"").is_err());
        let mut offer = offer().with_http(true);
        assert_eq!(offer.hear(1, HTTP_CALL, b"any"), Ok(Heard::Fetch));
        assert!(offer.hear(2, "add", b"1").is_err() && offer.hear(2, HTTP_CALL, b"").is_err());
        assert!(!offer.fetched(2) && offer.fetched(1) && !offer.fetched(1));
        assert!(offer.hear(2, "add", b"1").is_ok());
    }

    #[test]
    fn calls_are_counted_whether_they_are_passed_on_or_not() {
        let mut offer = offer();
        for call in 1..=MAX_TOOL_CALLS {
            assert!(offer.hear(call, "rm", b"").is_ok());
        }
        assert!(offer.hear(MAX_TOOL_CALLS + 1, "rm", b"").is_err());
    }

    #[test]
    fn work_is_told_where_it_is_counted_and_never_more_than_there_was() {
        let end = |exit, fuel| ExecEnd::Exited { exit, usage: Usage { fuel, ..Usage::default() } };
        let (code, spent) = (Exit::Code(0), Exit::FuelSpent);
        let metered = Offer::of(Vec::new(), Some(7));
        for good in [end(code, Some(7)), end(code, None), end(spent, Some(7))] {
            assert_eq!(metered.over(&good), Ok(()));
        }
        assert!(metered.over(&end(spent, Some(8))).is_err());
        for other in [Offer::default(), offer()] {
            assert_eq!(other.over(&end(code, None)), Ok(()));
            assert!(other.over(&end(code, Some(0))).is_err() && other.over(&end(spent, None)).is_err());
        }
    }

    #[test]
    fn an_answer_that_is_too_long_is_a_failure_that_says_so() {
        let long = Value::from("x".repeat(MAX_TOOL_ANSWER));
        let HostFrame::Answer { good, bytes, .. } = frame(1, 1, &Ok(long)) else { panic!() };
        assert!(!good && bytes.len() < 200);
        let HostFrame::Answer { good, bytes, .. } = frame(1, 1, &Err("a\"b".to_owned())) else { panic!() };
        assert_eq!((good, bytes.as_slice()), (false, &b"\"a\\\"b\""[..]));
    }
}
