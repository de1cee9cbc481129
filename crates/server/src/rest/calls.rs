//! `/v1/boxes/{id}/execs/{exec}/calls`: what a command wants of the functions that it was offered, and what they gave.
//!
//! A caller asks for the next call and waits for it; the command waits for the answer. Nobody else is told: a function that was
//! offered is the owner's.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use blastbox_engine::ToolAnswer;
use blastbox_engine::keeper::{CallCard, Keeper};
use blastbox_wire::limits::MAX_TOOL_ANSWER;
use blastbox_wire::tools::{BadJson, read_answer};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::Trouble;
use crate::answer::Answer;
use crate::caller::Caller;
use crate::take::{CallPath, ExecPath, Given, Query};

/// Longest time that a caller waits in one request.
const LONGEST: u64 = 60;

/// The calls that wait for an answer. A command has one at most.
#[derive(Debug, Serialize)]
pub(crate) struct Open {
    calls: Vec<CallCard>,
}

/// What came of a call: one of both.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answered {
    /// What the function gave; nothing is something to give.
    #[serde(default, deserialize_with = "whatever_is_there")]
    result: Option<Box<RawValue>>,
    /// Why it gave nothing.
    #[serde(default)]
    error: Option<String>,
}

fn whatever_is_there<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(from).map(Some)
}

impl Answered {
    /// The same of an answer that was read already.
    pub(crate) fn new(result: Option<Value>, error: Option<String>) -> Self {
        let result = result.and_then(|value| RawValue::from_string(value.to_string()).ok());
        Self { result, error }
    }

    /// Held against the same rules as what a command says.
    pub(crate) fn check(self) -> Result<ToolAnswer, Trouble> {
        let too_large = || Trouble::TooLarge { most: MAX_TOOL_ANSWER };
        match (self.result, self.error) {
            (Some(result), None) => match read_answer(result.get().as_bytes()) {
                // Written anew it may be longer: 1E9 becomes 1000000000.0.
                Ok(value) if value.to_string().len() > MAX_TOOL_ANSWER => Err(too_large()),
                Ok(value) => Ok(Ok(value)),
                Err(BadJson::TooLong { .. }) => Err(too_large()),
                Err(bad) => Err(Trouble::BadField(format!("`result` cannot be passed on: {bad}"))),
            },
            (None, Some(why)) if why.len() > MAX_TOOL_ANSWER => Err(too_large()),
            (None, Some(why)) => Ok(Err(why)),
            (Some(_), Some(_)) | (None, None) => {
                Err(Trouble::BadField("say `result` or `error`, and not both".to_owned()))
            }
        }
    }
}

pub(crate) async fn open(
    State(keeper): State<Keeper>,
    caller: Caller,
    ExecPath(id, exec): ExecPath,
    query: Query,
) -> Result<Answer<Open>, Trouble> {
    let query = query.only(&["wait"])?;
    let seconds: u64 = query.parsed("wait", "a number of seconds")?.unwrap_or(0);
    if seconds > LONGEST {
        return Err(Trouble::BadQuery("the parameter `wait` is 0 to 60 seconds".to_owned()));
    }
    let patience = Duration::from_secs(seconds);
    let call = keeper.wait_for_call(&caller.tenant, &id, exec, patience).await?;
    Ok(Answer::ok(Open { calls: call.into_iter().collect() }))
}

pub(crate) async fn answer(
    State(keeper): State<Keeper>,
    caller: Caller,
    CallPath(id, exec, call): CallPath,
    Given(answered): Given<Answered>,
) -> Result<StatusCode, Trouble> {
    keeper.answer_call(&caller.tenant, &id, exec, call, answered.check()?).await?;
    Ok(StatusCode::NO_CONTENT)
}
