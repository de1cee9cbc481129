//! `/v1/boxes/{id}/execs/{exec}/calls`: what a command wants of the functions that it was offered, and what they gave.
//!
//! A caller asks for the next call and waits for it; the command waits for the answer. Nobody else is told: a function that was
//! offered is the owner's.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use blastbox_engine::keeper::{CallCard, Keeper};
use blastbox_wire::limits::MAX_TOOL_ANSWER;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// What came of a call.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answered {
    /// What the function gave.
    Result(Value),
    /// Why it gave nothing.
    Error(String),
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
    let answer = match answered {
        Answered::Result(value) => Ok(value),
        Answered::Error(why) => Err(why),
    };
    let length = match &answer {
        Ok(value) => value.to_string().len(),
        Err(why) => why.len(),
    };
    if length > MAX_TOOL_ANSWER {
        return Err(Trouble::TooLarge { most: MAX_TOOL_ANSWER });
    }
    keeper.answer_call(&caller.tenant, &id, exec, call, answer).await?;
    Ok(StatusCode::NO_CONTENT)
}
