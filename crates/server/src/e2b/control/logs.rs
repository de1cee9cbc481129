//! `GET /sandboxes/{id}/logs`: what was done with a sandbox through this face.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use blastbox_engine::keeper::Tenant;
use serde_json::{Value, json};

use super::Generation;
use crate::e2b::desk::Desk;
use crate::e2b::no::No;
use crate::e2b::sandbox::LogLine;
use crate::e2b::{form, moment};

const MOST: usize = 1_000;
const LONGEST_SEARCH: usize = 256;
const LEVELS: [&str; 4] = ["debug", "info", "warn", "error"];

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

fn number(query: &[(String, String)], name: &str) -> Result<Option<i64>, No> {
    let parsed = form::value(query, name).map(|text| text.parse::<i64>().ok().filter(|number| *number >= 0));
    match parsed {
        None => Ok(None),
        Some(Some(number)) => Ok(Some(number)),
        Some(None) => Err(No::bad(format!("{name} is not a number"))),
    }
}

fn chosen(mut lines: Vec<LogLine>, query: &[(String, String)]) -> Result<Vec<LogLine>, No> {
    let backward = match form::value(query, "direction") {
        None | Some("forward") => false,
        Some("backward") => true,
        Some(_) => return Err(No::bad("direction is forward or backward")),
    };
    let least = match form::value(query, "level") {
        None => 0,
        Some(level) => LEVELS
            .iter()
            .position(|known| *known == level)
            .ok_or_else(|| No::bad("level is debug, info, warn or error"))?,
    };
    let search = form::value(query, "search").unwrap_or_default();
    if search.chars().count() > LONGEST_SEARCH {
        return Err(No::bad(format!("search has more than {LONGEST_SEARCH} characters")));
    }
    let cursor = number(query, "cursor")?;
    lines.retain(|line| {
        let at = moment::millis(line.at);
        let in_range = cursor.is_none_or(|cursor| if backward { at <= cursor } else { at >= cursor });
        let level = LEVELS.iter().position(|known| *known == line.level).unwrap_or(0);
        in_range && level >= least && line.message.contains(search)
    });
    if backward {
        lines.reverse();
    }
    Ok(lines)
}
