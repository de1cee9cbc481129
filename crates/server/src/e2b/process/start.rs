//! Start: a command or a terminal, and everything that it says.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use blastbox_engine::Command;
use blastbox_engine::keeper::{ExecEnded, KeepError};
use blastbox_wire::agent::Io;
use blastbox_wire::limits::{MAX_ARGUMENT, MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_PATH};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::join::{Listener, listen};
use super::table::{Mouth, Told};
use super::{Pty, environment};
use crate::e2b::envd::paths;
use crate::e2b::no::echo;
use crate::e2b::rpc::error::{Code, RpcError};
use crate::e2b::rpc::stream::Call;
use crate::e2b::rpc::{Context, Frames, Sent, decoded};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Start {
    process: Config,
    pty: Option<Pty>,
    tag: Option<String>,
    stdin: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Config {
    cmd: String,
    args: Vec<String>,
    envs: BTreeMap<String, String>,
    cwd: Option<String>,
}

pub(crate) async fn answer(context: Context, call: Call, body: Sent) -> Response<Body> {
    match begin(&context, &call, body).await {
        Ok(listener) => listen(context, call, listener),
        Err(error) => call.refuse(&error),
    }
}

fn invalid(what: impl Into<String>) -> RpcError {
    RpcError::new(Code::InvalidArgument, what)
}

async fn begin(context: &Context, call: &Call, body: Sent) -> Result<Listener, RpcError> {
    let mut frames = Frames::of(body);
    let message =
        frames.first().await?.ok_or_else(|| invalid("protocol error: the stream has no message"))?;
    let start: Start = decoded(call, &message)?;
    let told = told(&start);
    let place = start.process.cwd.clone().unwrap_or_default();
    let name = start.process.cmd.clone();
    let command = command(context, start, told.mouth)?;
    let (keeper, sandbox) = (context.desk.keeper(), &context.sandbox);
    let mouth = told.mouth;
    let exec = keeper.exec_within(&sandbox.tenant, &sandbox.box_id, command, context.timeout).await;
    let exec = exec.map_err(|error| match error {
        KeepError::QuotaSpent { .. } => {
            RpcError::new(Code::ResourceExhausted, "too many commands run in this sandbox")
        }
        KeepError::NotFound | KeepError::Gone | KeepError::WrongPhase(_) => RpcError::gone(),
        other => RpcError::new(Code::Internal, other.to_string()),
    })?;
    sandbox.processes.add(exec, told);
    // One that has ended meanwhile was not known when its end was told, and would be kept for good.
    if super::card_of(context, exec).is_none_or(|card| card.ended.is_some()) {
        sandbox.processes.ended(exec);
    }
    let tape = keeper.tape(&sandbox.tenant, &sandbox.box_id, exec, None).map_err(|_| RpcError::gone())?;
    let deadline = context.timeout.map(|timeout| tokio::time::Instant::now() + timeout + GRACE);
    Ok(Listener { exec, mouth, tape: tape.hold_back(), deadline, asked: Some((name, place)) })
}

/// How long the keeper has to kill a command whose time is over, before its stream ends without it.
const GRACE: Duration = Duration::from_secs(30);

/// What is remembered of a process.
fn told(start: &Start) -> Told {
    let mouth = match (&start.pty, start.stdin) {
        (Some(_), _) => Mouth::Terminal,
        (None, Some(false)) => Mouth::Nothing,
        (None, Some(true) | None) => Mouth::Pipe,
    };
    let Config { cmd, args, envs, cwd } = &start.process;
    let mut config = Map::new();
    config.insert("cmd".to_owned(), json!(cut(cmd)));
    config.insert("args".to_owned(), args.iter().take(MOST_SHOWN).map(|word| json!(cut(word))).collect());
    config.insert(
        "envs".to_owned(),
        json!(envs.iter().take(MOST_SHOWN).map(|(n, v)| (cut(n), cut(v))).collect::<BTreeMap<_, _>>()),
    );
    config.extend(cwd.as_ref().map(|cwd| ("cwd".to_owned(), json!(cut(cwd)))));
    let config = within(config);
    Told { tag: start.tag.as_ref().map(|tag| cut(tag)), mouth, config }
}

/// Variables go first where it is too much, then words: what is shown of a process is what its owner needs to tell it from
/// others.
fn within(mut config: Map<String, Value>) -> Value {
    for field in ["envs", "args"] {
        let bytes = serde_json::to_string(&config).map_or(0, |text| text.len());
        if bytes > MOST_CONFIG {
            config.remove(field);
        }
    }
    Value::Object(config)
}

/// Bytes of all that is shown of one process.
const MOST_CONFIG: usize = 64 * 1024;
/// Words and variables of a process that List shows, and how much of each: a list is no archive.
const MOST_SHOWN: usize = 256;
const LONGEST_SHOWN: usize = 4_096;

fn cut(text: &str) -> String {
    let mut end = text.len().min(LONGEST_SHOWN);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default().to_owned()
}

fn command(context: &Context, start: Start, mouth: Mouth) -> Result<Command, RpcError> {
    let Start { process: Config { cmd, args, envs, cwd }, pty, .. } = start;
    if cmd.is_empty() {
        return Err(invalid("the command is empty"));
    }
    if cmd.contains('\0') || args.iter().any(|word| word.contains('\0')) {
        return Err(invalid("the command has a NUL in it, which no argument can have"));
    }
    let cwd = cwd.filter(|cwd| !cwd.is_empty()).or_else(|| context.sandbox.workdir.clone());
    let directory = paths::resolve(cwd.as_deref().unwrap_or_default(), context.user)
        .map_err(|_| invalid("cwd may not begin with another user's home"))?;
    if directory.contains('\0') || directory.len() >= MAX_PATH {
        return Err(invalid("cwd is no path that a sandbox can have"));
    }
    let environment = environment::of_command(&context.sandbox, context.user, &envs)?;
    let arguments: Vec<Vec<u8>> = std::iter::once(cmd).chain(args).map(String::into_bytes).collect();
    check_length(&arguments, &environment)?;
    let io = match (mouth, pty.and_then(|pty| pty.size)) {
        (Mouth::Terminal, size) => {
            let (rows, columns) = size.unwrap_or(super::Size { cols: 80, rows: 24 }).clamped();
            Io::Terminal { rows, columns }
        }
        (Mouth::Pipe, _) => Io::PipesWithStdin,
        (Mouth::Nothing, _) => Io::Pipes,
    };
    Ok(Command { arguments, environment, directory: directory.into_bytes(), io, user: context.user })
}

/// The kernel's own limits: what is beyond them is told before the box is asked.
fn check_length(arguments: &[Vec<u8>], environment: &[Vec<u8>]) -> Result<(), RpcError> {
    let all = || arguments.iter().chain(environment);
    let bytes: usize = all().map(|text| text.len() + 1 + size_of::<usize>()).sum();
    let many = arguments.len().max(environment.len()) > MAX_ARGUMENTS;
    if !many && bytes <= MAX_ARGUMENT_BYTES && all().all(|text| text.len() < MAX_ARGUMENT) {
        return Ok(());
    }
    Err(invalid(format!(
        "argument list too long: one argument or variable has at most {MAX_ARGUMENT} bytes, all of them at most {MAX_ARGUMENT_BYTES}"
    )))
}

/// Why a command could not be started, as E2B says it.
pub(super) fn not_started(ended: &ExecEnded, asked: Option<&(String, String)>) -> RpcError {
    let ExecEnded::NotStarted { code, message } = ended else { return RpcError::gone() };
    let (name, place) = asked.map_or(("", ""), |(name, place)| (name.as_str(), place.as_str()));
    match code.as_str() {
        "bad_directory" => invalid(format!("cwd '{}' does not exist", echo(place))),
        "not_found" | "not_executable" | "arguments_too_long" => {
            invalid(format!("cannot start '{}': {message}", echo(name)))
        }
        "too_many_commands" => RpcError::new(Code::ResourceExhausted, message.clone()),
        _ => RpcError::new(Code::Internal, message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_of_a_process_is_bounded() {
        let start = |args: Vec<String>, envs: BTreeMap<String, String>| Start {
            process: Config { cmd: "sh".to_owned(), args, envs, cwd: Some("/".to_owned()) },
            ..Start::default()
        };
        let size = |told: &Told| told.config.to_string().len();
        let many = |number: usize| (0..number).map(|n| (n.to_string(), "v".repeat(4_096))).collect();
        let small = told(&start(vec!["-c".to_owned()], many(1)));
        assert!(small.config["args"].is_array() && small.config["envs"].is_object());
        let large = told(&start(vec!["-c".to_owned()], many(256)));
        assert!(size(&large) < MOST_CONFIG && large.config["args"].is_array(), "{}", size(&large));
        let larger = told(&start(vec!["x".repeat(4_096); 256], many(256)));
        assert!(size(&larger) < MOST_CONFIG && larger.config["cmd"] == "sh", "{}", size(&larger));
    }
}
