//! What E2B's code interpreter SDKs take for a server inside a sandbox (port 49999): contexts that remember, one kernel each.
//!
//! - [`contexts`]: those of one sandbox. [`copied`]: those of one that was copied. [`kernel`]: a process in the box that is asked in lines of JSON (`kernel.py`,
//!   `kernel.js`). [`pooled`]: one that runs before its box is anybody's. [`turn`]: one piece of code, from the question to the last line of its answer.
//!
//! Trust: caller; what comes from a kernel is the payload's word, and bounded. Whoever has the sandbox's token runs code.
//! Contexts are made, listed and ended by whoever may reach its ports, as the SDKs send no token there: no code is run by
//! that, but what runs may be ended.

mod contexts;
pub(super) mod copied;
mod kernel;
pub(super) mod pooled;
mod turn;

use blastbox_wire::agent::User;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use serde::Deserialize;
use serde_json::json;

pub(super) use self::contexts::Contexts;
use self::contexts::{Context, Language};
use super::control::body;
use super::desk::Desk;
use super::envd::{self, paths};
use super::no::{No, echo};
use super::sandbox::Sandbox;
use super::{edge, endpoints, ports};
use crate::answer::Answer;

/// The port that it has in every sandbox.
pub(super) const PORT: u16 = 49_999;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NewContext {
    language: Option<String>,
    cwd: Option<String>,
}

/// Answers a request to the code interpreter of a sandbox.
pub(super) async fn answer(desk: &Arc<Desk>, id: &str, request: Request) -> Result<Response<Body>, No> {
    edge::let_through_to_a_port(&request)?;
    let sandbox = desk.reach(id)?;
    let (method, parts) = edge::parts(&request);
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    if let ("POST", ["execute"]) = (method.as_str(), parts.as_slice()) {
        ports::show_traffic_token(&sandbox, &request)?;
        envd::authorize(&sandbox, &request)?;
        desk.wake(&sandbox).await?;
        let asked = body::read(request).await?;
        return turn::answer(desk, &sandbox, asked).await;
    }
    // Strangers may come this far, as to any other port.
    let _place = ports::let_in(&sandbox, PORT, &request)?;
    endpoints::check(endpoints::INTERPRETER, method.as_str(), &parts)?;
    match (method.as_str(), parts.as_slice()) {
        ("GET", ["health"]) => Ok("\"OK\"".into_response()),
        ("GET", ["contexts"]) => {
            let shown: Vec<_> = sandbox.contexts.all().iter().map(|context| context.show()).collect();
            Ok(Answer(StatusCode::OK, json!(shown)).into_response())
        }
        ("POST", ["contexts"]) => {
            let context = make(&sandbox, body::read_of_stranger(request).await?)?;
            Ok(Answer(StatusCode::OK, context.show()).into_response())
        }
        ("POST", ["contexts", context, "restart"]) => {
            find(&sandbox, context)?.end(desk, &sandbox).await;
            Ok(StatusCode::OK.into_response())
        }
        ("DELETE", ["contexts", context]) => {
            let context = find(&sandbox, context)?;
            sandbox.contexts.remove(&context);
            context.end(desk, &sandbox).await;
            Ok(StatusCode::OK.into_response())
        }
        _ => Err(No::defect()),
    }
}

fn make(sandbox: &Sandbox, asked: NewContext) -> Result<Arc<Context>, No> {
    let language = Language::named(asked.language.as_deref())?;
    let cwd = paths::resolve(asked.cwd.as_deref().unwrap_or_default(), User::Payload)
        .map_err(|_| No::bad("cwd may not begin with another user's home"))?;
    if cwd.contains('\0') || cwd.len() >= blastbox_wire::limits::MAX_PATH {
        return Err(No::bad("cwd is no path that a sandbox can have"));
    }
    sandbox.contexts.add(language, cwd)
}

fn find(sandbox: &Sandbox, id: &str) -> Result<Arc<Context>, No> {
    sandbox.contexts.find(id).ok_or_else(|| No::new(404, format!("context {} not found", echo(id))))
}

impl Context {
    fn show(&self) -> serde_json::Value {
        json!({ "id": self.id, "language": self.language.as_str(), "cwd": self.cwd })
    }
}
