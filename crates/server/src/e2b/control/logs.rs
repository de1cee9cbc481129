//! `GET /sandboxes/{id}/logs`: what was done with a sandbox through this face.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use blastbox_engine::keeper::Tenant;
use serde_json::{Value, json};

use super::Generation;
use crate::e2b::desk::Desk;
use crate::e2b::lines::{Choice, number};
use crate::e2b::no::No;
use crate::e2b::sandbox::LogLine;
use crate::e2b::{form, moment};

const MOST: usize = 1_000;

pub(super) fn show(
    desk: &Desk,
    tenant: &Tenant,
    id: &str,
    query: Option<&str>,
    generation: Generation,
) -> Result<Response<Body>, No> {
    let (sandbox, _) = desk.own(tenant, id)?;
    let query = form::pairs(query);
    let limit = number(&query, "limit")?.map_or(MOST, |limit| usize::try_from(limit).unwrap_or(MOST));
    let lines = match generation {
        Generation::First => {
            let start = number(&query, "start")?;
            let lines = sandbox.log().into_iter();
            lines.filter(|line| start.is_none_or(|start| moment::millis(line.at) >= start)).collect()
        }
        Generation::Second => chosen(sandbox.log(), &query)?,
    };
    let lines: Vec<&LogLine> = lines.iter().take(limit.min(MOST)).collect();
    let entries: Vec<Value> = lines.iter().map(|line| line.show()).collect();
    let answer = match generation {
        Generation::First => {
            let old = |line: &&LogLine| json!({ "timestamp": moment::text(line.at), "line": line.message });
            json!({ "logs": lines.iter().map(old).collect::<Vec<_>>(), "logEntries": entries })
        }
        Generation::Second => json!({ "logs": entries }),
    };
    Ok(super::json(StatusCode::OK, answer))
}

fn chosen(mut lines: Vec<LogLine>, query: &[(String, String)]) -> Result<Vec<LogLine>, No> {
    let choice = Choice::of(query)?;
    lines.retain(|line| choice.takes(line.at, line.level, &line.message));
    if choice.backward {
        lines.reverse();
    }
    Ok(lines)
}
