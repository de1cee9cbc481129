//! SendInput, StreamInput and CloseStdin: bytes for a process.

use axum::body::Body;
use axum::http::Response;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use blastbox_engine::keeper::KeepError;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::table::{Found, Mouth};
use super::{Selector, trouble};
use crate::e2b::rpc::error::{Code, RpcError};
use crate::e2b::rpc::stream::Call;
use crate::e2b::rpc::{Context, Frames, Sent, decoded};

/// Bytes for a pipe or a terminal, in base64.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Input {
    stdin: Option<String>,
    pty: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Send {
    process: Selector,
    input: Option<Input>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Close {
    process: Selector,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Streamed {
    start: Option<Close>,
    data: Option<Data>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Data {
    input: Option<Input>,
}

/// SendInput.
pub(crate) async fn send(context: &Context, send: Send) -> Result<Value, RpcError> {
    let found = send.process.running(context)?;
    write(context, &send.process, &found, send.input.unwrap_or_default()).await?;
    Ok(json!({}))
}

async fn write(context: &Context, selector: &Selector, found: &Found, input: Input) -> Result<(), RpcError> {
    let internal = |what: &str| RpcError::new(Code::Internal, what);
    let text = match (input, found.mouth) {
        (Input { stdin: Some(text), .. }, Mouth::Pipe) | (Input { pty: Some(text), .. }, Mouth::Terminal) => {
            text
        }
        (Input { stdin: Some(_), .. }, Mouth::Nothing) => {
            return Err(internal("stdin not enabled or closed"));
        }
        (Input { stdin: Some(_), .. }, Mouth::Terminal) => {
            return Err(internal("the process has a tty, not a stdin"));
        }
        (Input { pty: Some(_), .. }, Mouth::Pipe | Mouth::Nothing) => {
            return Err(internal("tty not assigned to process"));
        }
        (Input { stdin: None, pty: None }, _) => {
            return Err(RpcError::new(Code::Unimplemented, "invalid input type"));
        }
    };
    let bytes = base64(&text)?;
    let (keeper, sandbox) = (context.desk.keeper(), &context.sandbox);
    match keeper.write_stdin(&sandbox.tenant, &sandbox.box_id, found.exec, &bytes).await {
        Ok(()) => Ok(()),
        Err(KeepError::CommandOver) if selector.running(context).is_ok() => {
            Err(internal("stdin not enabled or closed"))
        }
        Err(error) => Err(trouble(&error, selector)),
    }
}

/// protobuf's JSON takes every form of base64.
fn base64(text: &str) -> Result<Vec<u8>, RpcError> {
    let decoded = STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text));
    let decoded = decoded.or_else(|_| URL_SAFE.decode(text));
    decoded.map_err(|_| RpcError::new(Code::InvalidArgument, "unmarshal message: the input is not base64"))
}

/// CloseStdin: the end of a pipe. Saying it twice is fine.
pub(crate) async fn close(context: &Context, close: Close) -> Result<Value, RpcError> {
    let found = close.process.running(context)?;
    match found.mouth {
        Mouth::Terminal => {
            let what = "cannot close stdin for a PTY process, send Ctrl+D (0x04) instead";
            return Err(RpcError::new(Code::FailedPrecondition, what));
        }
        Mouth::Nothing => return Ok(json!({})),
        Mouth::Pipe => {}
    }
    let (keeper, sandbox) = (context.desk.keeper(), &context.sandbox);
    match keeper.end_stdin(&sandbox.tenant, &sandbox.box_id, found.exec).await {
        // It was closed before, or the process has just ended.
        Ok(()) | Err(KeepError::CommandOver) => Ok(json!({})),
        Err(error) => Err(trouble(&error, &close.process)),
    }
}

/// StreamInput: many pieces in one call, in order.
pub(crate) async fn stream(context: Context, call: Call, body: Sent) -> Response<Body> {
    let work = take(&context, &call, Frames::of(body));
    let outcome = match context.timeout {
        None => Box::pin(work).await,
        Some(limit) => match timeout(limit, work).await {
            Ok(outcome) => outcome,
            Err(_) => Err(RpcError::new(Code::DeadlineExceeded, "context deadline exceeded")),
        },
    };
    if let Err(error) = outcome {
        return call.refuse(&error);
    }
    let (answering, response) = call.begin();
    tokio::spawn(async move {
        if answering.send(&json!({})).await {
            answering.end().await;
        }
    });
    response
}

async fn take(context: &Context, call: &Call, mut frames: Frames) -> Result<(), RpcError> {
    let mut target: Option<(Selector, Found)> = None;
    let mut next = frames.first().await?;
    while let Some(message) = next {
        let streamed: Streamed = decoded(call, &message)?;
        match (streamed, &target) {
            (Streamed { start: Some(Close { process }), .. }, _) => {
                let found = process.running(context)?;
                target = Some((process, found));
            }
            (Streamed { data: Some(Data { input }), .. }, Some((selector, found))) => {
                write(context, selector, found, input.unwrap_or_default()).await?;
            }
            (Streamed { data: Some(_), .. }, None) => {
                return Err(RpcError::new(Code::InvalidArgument, "data came before a process was selected"));
            }
            // That the caller is still there.
            (Streamed { start: None, data: None }, _) => {}
        }
        next = frames.next().await?;
    }
    Ok(())
}
