//! One piece of code: asked of the kernel of its context, answered line by line as it comes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response};
use blastbox_wire::agent::User;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep_until, timeout};

use super::contexts::Language;
use super::kernel::{Ask, Kernel, Over};
use crate::e2b::desk::Desk;
use crate::e2b::feed::{self, Filler};
use crate::e2b::no::No;
use crate::e2b::process::environment;
use crate::e2b::sandbox::Sandbox;

/// A client that hears nothing for so long is told that its code still runs.
const SILENCE: Duration = Duration::from_secs(5);
/// How long code that nobody waits for any more may take to stop, before its kernel is ended.
const STOPPING: Duration = Duration::from_secs(5);
/// Bytes of a line that are handed on at once: what is behind them waits here, not with the connection.
const PIECE: usize = 64 * 1024;
/// What a kernel may say to a client.
const PASSED: [&str; 5] = ["stdout", "stderr", "result", "error", BEGUN];
/// With this it says that code has begun, and can be interrupted.
const BEGUN: &str = "number_of_executions";

#[derive(Deserialize)]
pub(super) struct Asked {
    code: String,
    #[serde(default)]
    context_id: Option<String>,
    #[serde(default)]
    language: Option<String>,
    #[serde(default)]
    env_vars: Option<BTreeMap<String, String>>,
}

/// Runs code, and answers with what comes of it.
pub(super) async fn answer(
    desk: &Arc<Desk>,
    sandbox: &Arc<Sandbox>,
    asked: Asked,
) -> Result<Response<Body>, No> {
    let context = match (&asked.context_id, &asked.language) {
        (Some(_), Some(_)) => {
            return Err(No::bad("name a context or a language, not both"));
        }
        (Some(id), None) => super::find(sandbox, id)?,
        (None, language) => sandbox.contexts.usual(Language::named(language.as_deref())?)?,
    };
    let env_vars = asked.env_vars.unwrap_or_default();
    environment::of_command(sandbox, User::Payload, &env_vars)
        .map_err(|_| No::bad("a variable of env_vars has a name that is empty or has `=` in it, or a NUL"))?;
    // Whoever goes away while others run is not waited for.
    let mut held = Arc::clone(&context.kernel).lock_owned().await;
    if held.is_none() {
        *held = Some(Kernel::start(desk, sandbox, &context).await?);
    }
    let (to, body) = feed::channel();
    tokio::spawn(run(Arc::clone(desk), Arc::clone(sandbox), held, asked.code, env_vars, to));
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

type Held = OwnedMutexGuard<Option<Kernel>>;

/// The kernel goes back to its context only if it has said that it is done.
async fn run(
    desk: Arc<Desk>,
    sandbox: Arc<Sandbox>,
    mut held: Held,
    code: String,
    env_vars: BTreeMap<String, String>,
    to: Filler,
) {
    let Some(mut kernel) = held.take() else { return };
    match follow(&mut kernel, &Ask { code: &code, env_vars: &env_vars }, &to).await {
        Ok(End::Done) => *held = Some(kernel),
        Ok(End::NobodyListens(begun)) => {
            if timeout(STOPPING, stop(&mut kernel, begun)).await.is_ok_and(|stopped| stopped.is_ok()) {
                *held = Some(kernel);
            }
            return;
        }
        // Half a question was asked: nobody could ask it another.
        Ok(End::NeverAsked) => return,
        // How its client tells that the whole sandbox has ended.
        Err(_) if !desk.runs(&sandbox) => return to.cut().await,
        Err(Over(why)) => {
            let value =
                if why.is_empty() { "the kernel ended; the next call begins anew".to_owned() } else { why };
            let error =
                json!({ "type": "error", "name": "ContextRestarting", "value": value, "traceback": "" });
            to.send(line_of(&error)).await;
        }
    }
    to.send(line_of(&json!({ "type": "end_of_execution" }))).await;
}

enum End {
    Done,
    /// Whether its code has begun.
    NobodyListens(bool),
    NeverAsked,
}

/// Asks, and passes on what the kernel says, until it is done or nobody listens.
async fn follow(kernel: &mut Kernel, ask: &Ask<'_>, to: &Filler) -> Result<End, Over> {
    let asking = kernel.ask(ask)?;
    tokio::pin!(asking);
    let (mut asked, mut begun) = (false, false);
    let mut quiet = Instant::now() + SILENCE;
    loop {
        let line = tokio::select! {
            sent = &mut asking, if !asked => {
                sent?;
                asked = true;
                continue;
            }
            line = kernel.line() => line?,
            () = to.left_alone() => {
                return Ok(if asked { End::NobodyListens(begun) } else { End::NeverAsked });
            }
            () = sleep_until(quiet) => {
                quiet = Instant::now() + SILENCE;
                to.send(line_of(&json!({ "type": "keepalive" }))).await;
                continue;
            }
        };
        quiet = Instant::now() + SILENCE;
        if line.kind == "end" {
            return Ok(End::Done);
        }
        begun |= line.kind == BEGUN;
        if PASSED.contains(&line.kind.as_str()) && !pass_on(line.bytes, to).await {
            return Ok(if asked { End::NobodyListens(begun) } else { End::NeverAsked });
        }
    }
}

/// A line in pieces, so that what a slow client has not taken is here once and not in its queue as well.
async fn pass_on(mut line: Bytes, to: &Filler) -> bool {
    while line.len() > PIECE {
        if !to.send(line.split_to(PIECE)).await {
            return false;
        }
    }
    to.send(line).await
}

/// Interrupts code that nobody waits for, once it has begun: before that nobody would hear it.
async fn stop(kernel: &mut Kernel, mut begun: bool) -> Result<(), Over> {
    while !begun {
        let line = kernel.line().await?;
        begun = line.kind == BEGUN || line.kind == "end";
        if line.kind == "end" {
            return Ok(());
        }
    }
    kernel.interrupt().await;
    while kernel.line().await?.kind != "end" {}
    Ok(())
}

fn line_of(value: &Value) -> Bytes {
    let mut line = value.to_string();
    line.push('\n');
    Bytes::from(line)
}
