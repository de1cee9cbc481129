//! One piece of code: asked of the kernel of its context, answered line by line as it comes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, sleep_until, timeout};

use super::contexts::Language;
use super::kernel::{Ask, Kernel, Over, kind};
use crate::e2b::desk::Desk;
use crate::e2b::feed::{self, Filler};
use crate::e2b::no::No;
use crate::e2b::sandbox::Sandbox;

/// A client that hears nothing for so long is told that its code still runs.
const SILENCE: Duration = Duration::from_secs(5);
/// How long code that nobody waits for any more may take to stop, before its kernel is ended.
const STOPPING: Duration = Duration::from_secs(5);
/// What a kernel may say to a client.
const PASSED: [&str; 5] = ["stdout", "stderr", "result", "error", "number_of_executions"];

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
    // Whoever goes away while others run is not waited for.
    let mut held = Arc::clone(&context.kernel).lock_owned().await;
    if held.is_none() {
        *held = Some(Kernel::start(desk, sandbox, &context).await?);
    }
    let (to, body) = feed::channel();
    tokio::spawn(run(Arc::clone(desk), Arc::clone(sandbox), held, asked, to));
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

type Held = OwnedMutexGuard<Option<Kernel>>;

/// The kernel goes back to its context only if it has said that it is done.
async fn run(desk: Arc<Desk>, sandbox: Arc<Sandbox>, mut held: Held, asked: Asked, to: Filler) {
    let Some(mut kernel) = held.take() else { return };
    let env_vars = asked.env_vars.unwrap_or_default();
    match follow(&mut kernel, &Ask { code: &asked.code, env_vars: &env_vars }, &to).await {
        Ok(End::Done) => *held = Some(kernel),
        Ok(End::NobodyListens) => {
            kernel.interrupt().await;
            if timeout(STOPPING, wait_for_end(&mut kernel)).await.is_ok_and(|end| end.is_ok()) {
                *held = Some(kernel);
            }
            return;
        }
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
    NobodyListens,
}

/// Passes on what the kernel says, until it is done or nobody listens.
async fn follow(kernel: &mut Kernel, ask: &Ask<'_>, to: &Filler) -> Result<End, Over> {
    kernel.ask(ask).await?;
    let mut quiet = Instant::now() + SILENCE;
    loop {
        let said = tokio::select! {
            line = kernel.line() => line?,
            () = to.left_alone() => return Ok(End::NobodyListens),
            () = sleep_until(quiet) => json_map("keepalive"),
        };
        quiet = Instant::now() + SILENCE;
        match kind(&said) {
            "end" => return Ok(End::Done),
            "keepalive" => {}
            other if PASSED.contains(&other) => {}
            _ => continue,
        }
        if !to.send(line_of(&Value::Object(said))).await {
            return Ok(End::NobodyListens);
        }
    }
}

async fn wait_for_end(kernel: &mut Kernel) -> Result<(), Over> {
    while kind(&kernel.line().await?) != "end" {}
    Ok(())
}

fn json_map(kind: &str) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), json!(kind))])
}

fn line_of(value: &Value) -> Bytes {
    let mut line = value.to_string();
    line.push('\n');
    Bytes::from(line)
}
