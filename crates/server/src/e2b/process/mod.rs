//! `process.Process`: commands and terminals in a sandbox, by their process id inside or by a tag.

pub(super) mod environment;
mod event;
pub(super) mod input;
pub(super) mod join;
pub(super) mod start;
pub(super) mod table;

use blastbox_engine::keeper::KeepError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::rpc::Context;
use super::rpc::error::{Code, RpcError};
use table::{Found, Mouth};

const SIGKILL: u8 = 9;
const SIGTERM: u8 = 15;

/// Which process is meant.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Selector {
    pid: Option<u32>,
    tag: Option<String>,
}

/// The size of a terminal.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Size {
    cols: u32,
    rows: u32,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pty {
    size: Option<Size>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Update {
    process: Selector,
    pty: Option<Pty>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Signal {
    process: Selector,
    signal: Value,
}

impl Size {
    /// Rows and columns as a terminal has them.
    fn clamped(self) -> (u16, u16) {
        let clamp = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        (clamp(self.rows), clamp(self.cols))
    }
}

impl Selector {
    fn not_found(&self) -> RpcError {
        let what = match (self.pid, &self.tag) {
            (Some(pid), _) => format!("process with pid {pid} not found"),
            (None, Some(tag)) => format!("process with tag {tag} not found"),
            (None, None) => return RpcError::new(Code::InvalidArgument, "no process is selected"),
        };
        RpcError::new(Code::NotFound, what)
    }

    /// A process that runs.
    fn running(&self, context: &Context) -> Result<Found, RpcError> {
        let cards = context.cards()?;
        context
            .sandbox
            .processes
            .running(self.pid, self.tag.as_deref(), &cards)
            .ok_or_else(|| self.not_found())
    }
}

impl Context {
    /// What the keeper knows of the commands in the box.
    fn cards(&self) -> Result<Vec<blastbox_engine::keeper::ExecCard>, RpcError> {
        let found = self.desk.keeper().get(&self.sandbox.tenant, &self.sandbox.box_id);
        found.map(|(_, cards)| cards).map_err(|_| RpcError::gone())
    }
}

fn card_of(context: &Context, exec: u32) -> Option<blastbox_engine::keeper::ExecCard> {
    context.cards().ok()?.into_iter().find(|card| card.exec == exec)
}

/// What the keeper says to something about a process that is there.
fn trouble(error: &KeepError, selector: &Selector) -> RpcError {
    match error {
        KeepError::NotFound | KeepError::CommandOver => selector.not_found(),
        KeepError::Gone | KeepError::WrongPhase(_) => RpcError::gone(),
        KeepError::QuotaSpent { .. } => {
            RpcError::new(Code::ResourceExhausted, "too many commands run in this sandbox")
        }
        other => RpcError::new(Code::Internal, other.to_string()),
    }
}

/// List: what runs.
pub(super) fn list(context: &Context) -> Value {
    let cards = context.cards().unwrap_or_default();
    let processes = context.sandbox.processes.list(&cards);
    json!({ "processes": processes })
}

/// Update: another size for a terminal.
pub(super) async fn update(context: &Context, update: Update) -> Result<Value, RpcError> {
    let found = update.process.running(context)?;
    let Some(size) = update.pty.and_then(|pty| pty.size) else { return Ok(json!({})) };
    if found.mouth != Mouth::Terminal {
        return Err(RpcError::new(Code::FailedPrecondition, "tty not assigned to process"));
    }
    let (rows, columns) = size.clamped();
    let (keeper, sandbox) = (context.desk.keeper(), &context.sandbox);
    let resized = keeper.resize(&sandbox.tenant, &sandbox.box_id, found.exec, rows, columns).await;
    resized.map_err(|error| trouble(&error, &update.process))?;
    Ok(json!({}))
}

/// SendSignal: to the whole group of a process, so that nothing it started is left.
pub(super) async fn signal(context: &Context, asked: Signal) -> Result<Value, RpcError> {
    let number = match &asked.signal {
        Value::String(word) if word == "SIGNAL_SIGKILL" => SIGKILL,
        Value::String(word) if word == "SIGNAL_SIGTERM" => SIGTERM,
        Value::Number(number) if number.as_u64() == Some(u64::from(SIGKILL)) => SIGKILL,
        Value::Number(number) if number.as_u64() == Some(u64::from(SIGTERM)) => SIGTERM,
        _ => return Err(RpcError::new(Code::Unimplemented, "invalid signal: it is SIGKILL or SIGTERM")),
    };
    let found = asked.process.running(context)?;
    let (keeper, sandbox) = (context.desk.keeper(), &context.sandbox);
    let sent = keeper.signal(&sandbox.tenant, &sandbox.box_id, found.exec, number).await;
    sent.map_err(|error| trouble(&error, &asked.process))?;
    Ok(json!({}))
}
