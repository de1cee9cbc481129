//! Functions that a client offers to a command by name: the protocol has no call from server to client for them, so an answer of
//! `run_code` or `run_command` says what the command waits for, and `answer_call` goes on.
//!
//! Trust: name and input of a call are a guest's. Both were held against what was offered and read as JSON before they come here.

use std::time::Duration;

use blastbox_engine::keeper::CallCard;
use blastbox_wire::BoxId;
use rmcp::schemars;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::desk::{Desk, Refused};
use super::notebook;
use super::work::{self, Asker, Came};
use crate::rest::calls::Answered;

/// How long one look for a call takes.
const LOOK: Duration = Duration::from_secs(60);

/// `answer_call`.
#[derive(Debug, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AnswerCall {
    /// The command that waits: `exec` of the answer that told of the call.
    pub(crate) exec: u32,
    /// The number of the call: `waits.call` of that answer.
    pub(crate) call: u32,
    /// What the function gives, any JSON. Exactly one of `result` and `error`.
    #[serde(default, deserialize_with = "whatever_is_there")]
    #[schemars(with = "Option<Value>")]
    pub(crate) result: Option<Value>,
    /// Why it gives nothing.
    pub(crate) error: Option<String>,
    /// The box of that answer; the session's own if absent.
    #[serde(rename = "box")]
    pub(crate) of: Option<String>,
}

/// Nothing is something to give.
fn whatever_is_there<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// The next call of a command. Never, where it makes none.
pub(crate) async fn next(desk: &Desk, id: &BoxId, exec: u32) -> CallCard {
    loop {
        match desk.keeper.wait_for_call(&desk.tenant, id, exec, LOOK).await {
            Ok(Some(card)) => return card,
            Ok(None) => {}
            // It is over, and its end is told by whoever listens to it.
            Err(_) => std::future::pending().await,
        }
    }
}

/// What the model reads of a call.
pub(crate) fn words(card: &CallCard) -> String {
    let CallCard { call, tool, input } = card;
    format!(
        "the program waits: it calls {tool} with {input}. Answer within 60 s by answer_call with call = {call} and result or error."
    )
}

/// Answers a call, and waits for what the command does next.
pub(crate) async fn answer(desk: &Desk, asked: AnswerCall, asker: &Asker) -> Result<Came, Refused> {
    let AnswerCall { exec, call, result, error, of } = asked;
    let id = match of {
        Some(name) => desk.find(Some(&name)).await?,
        // None is made only to be asked.
        None => desk.own().await.ok_or_else(|| Refused("the session has no box".to_owned()))?,
    };
    let answer = Answered::new(result, error).check()?;
    // Held from here on: nobody gives the interpreter another piece of code meanwhile.
    let interpreter = desk.notebooks.waiting(&id, exec, call).await?;
    let answered = desk.keeper.answer_call(&desk.tenant, &id, exec, call, answer).await;
    match interpreter {
        // Also where it came too late, or the interpreter would wait until its time is over.
        Some(waiting) => notebook::go_on(desk, waiting, answered, asker).await,
        None => {
            answered?;
            work::attend(desk, &id, exec, asker).await
        }
    }
}
