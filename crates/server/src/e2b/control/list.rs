//! `GET /v2/sandboxes` and `GET /sandboxes`: which sandboxes there are.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode};
use blastbox_engine::keeper::{BoxCard, Tenant};
use serde_json::Value;

use super::page::{self, MOST, Order};
use super::{Generation, show};
use crate::e2b::desk::Desk;
use crate::e2b::no::No;
use crate::e2b::sandbox::Sandbox;
use crate::e2b::{form, moment};

/// What is asked for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    notes: Vec<(String, String)>,
    states: Vec<String>,
    order: Order,
    started_after: Option<i64>,
    template: Option<String>,
    limit: usize,
    after: Option<String>,
}

impl Wanted {
    fn of(query: Option<&str>) -> Result<Self, No> {
        let mut wanted = Self { limit: MOST, ..Self::default() };
        for (name, value) in form::pairs(query) {
            match name.as_str() {
                "metadata" => wanted.notes = notes(&value),
                "state" => {
                    for state in value.split(',').filter(|state| !state.is_empty()) {
                        if !matches!(state, "running" | "paused") {
                            return Err(No::bad("state is running or paused"));
                        }
                        wanted.states.push(state.to_owned());
                    }
                }
                "order" => {
                    wanted.order = match value.as_str() {
                        "asc" => Order::OldestFirst,
                        "desc" => Order::NewestFirst,
                        _ => return Err(No::bad("order is asc or desc")),
                    }
                }
                "startedAfter" => {
                    let at = moment::parse(&value).ok_or_else(|| No::bad("startedAfter is not RFC 3339"))?;
                    wanted.started_after = Some(at);
                }
                "template" => wanted.template = Some(value),
                "limit" => wanted.limit = page::limit(Some(&value))?,
                "nextToken" => wanted.after = Some(page::place(&value)?),
                // What else an SDK may send one day filters nothing.
                _ => {}
            }
        }
        Ok(wanted)
    }

    fn fits(&self, sandbox: &Sandbox, card: &BoxCard) -> bool {
        let noted = self.notes.iter().all(|(name, value)| card.metadata.get(name) == Some(value));
        let state = self.states.is_empty() || self.states.iter().any(|state| state == show::state(card));
        let started = self
            .started_after
            .is_none_or(|after| moment::parse(&card.created_at).is_some_and(|started| started >= after));
        noted && state && started && self.template.as_ref().is_none_or(|name| *name == sandbox.template)
    }
}

/// `k=v&k2=v2`, whose parts are encoded once more than the query that carries them.
fn notes(text: &str) -> Vec<(String, String)> {
    let once_more =
        |(name, value): (String, String)| (form::percent_decoded(&name), form::percent_decoded(&value));
    form::pairs(Some(text)).into_iter().map(once_more).collect()
}

/// Where a sandbox stands in the list, whatever comes and goes beside it.
fn place(card: &BoxCard) -> String {
    format!("{} {}", card.created_at, card.id.as_str())
}

pub(super) fn list(
    desk: &Desk,
    tenant: &Tenant,
    query: Option<&str>,
    generation: Generation,
) -> Result<Response<Body>, No> {
    let mut wanted = Wanted::of(query)?;
    if generation == Generation::First {
        // The first generation knows neither pages nor paused sandboxes.
        wanted = Wanted {
            notes: wanted.notes,
            states: vec!["running".to_owned()],
            limit: usize::MAX,
            ..Wanted::default()
        };
    }
    let all: Vec<(String, (Arc<Sandbox>, BoxCard))> = desk
        .of(tenant)
        .into_iter()
        .filter(|(sandbox, card)| wanted.fits(sandbox, card))
        .map(|(sandbox, card)| (place(&card), (sandbox, card)))
        .collect();
    let running = all.iter().filter(|(_, (_, card))| show::state(card) == "running").count();
    let (all, next) = page::cut(all, wanted.order, wanted.limit, wanted.after.as_deref());
    let shown: Vec<Value> = all.iter().map(|(_, (sandbox, card))| show::listed(sandbox, card)).collect();
    let mut response = super::json(StatusCode::OK, shown.into());
    let headers = response.headers_mut();
    headers.insert("x-total-running", HeaderValue::from(running));
    headers.extend(next);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_is_undone_twice() {
        // What Python sends for {"a b": "c&d=é"}: quoted, joined as a form, and carried as a value.
        let wanted = Wanted::of(Some("metadata=a%2520b%3Dc%2526d%253D%25C3%25A9")).unwrap();
        assert_eq!(wanted.notes, [("a b".to_owned(), "c&d=é".to_owned())]);
    }

    #[test]
    fn states_come_joined_or_repeated() {
        let both = ["running".to_owned(), "paused".to_owned()];
        assert_eq!(Wanted::of(Some("state=running,paused")).unwrap().states, both);
        assert_eq!(Wanted::of(Some("state=running&state=paused")).unwrap().states, both);
        assert_eq!(Wanted::of(Some("state=running%2Cpaused")).unwrap().states, both);
    }

    #[test]
    fn what_cannot_be_listed_is_refused() {
        for bad in
            ["limit=0", "limit=101", "limit=x", "state=gone", "order=up", "startedAfter=now", "nextToken=%25"]
        {
            assert_eq!(Wanted::of(Some(bad)).unwrap_err().status(), 400, "{bad}");
        }
        assert_eq!(Wanted::of(None).unwrap(), Wanted { limit: 100, ..Wanted::default() });
    }
}
