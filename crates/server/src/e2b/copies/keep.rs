//! Snapshots as E2B has them: `POST /sandboxes/{id}/snapshots`, `GET /snapshots`, `DELETE /templates/{snapshotID}`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use blastbox_engine::keeper::{KeepError, SnapshotCard, SnapshotId, Tenant};
use serde::Deserialize;
use serde_json::{Value, json};

use super::portrait::Portrait;
use super::refused;
use crate::answer::Answer;
use crate::e2b::control::body;
use crate::e2b::control::page::{self, Order};
use crate::e2b::desk::Desk;
use crate::e2b::no::{No, echo};
use crate::e2b::sandbox::name_of;
use crate::e2b::templates::Named;
use crate::e2b::{form, template};

/// The tag of a snapshot that has no name.
const TAG: &str = "default";

#[derive(Debug, Deserialize)]
struct Asked {
    name: Option<String>,
    memory: Option<bool>,
}

/// A snapshot as somebody names it.
#[derive(Debug, PartialEq, Eq)]
enum Called {
    Id(SnapshotId),
    Name(String, String),
}

impl Called {
    /// `sn_…`, `name` or `tenant/name`, each perhaps with a tag. `None`: nothing can be called that.
    fn parse(tenant: &Tenant, text: &str) -> Option<Self> {
        let bare = text.strip_suffix(":default").unwrap_or(text);
        if let Ok(id) = bare.parse() {
            return Some(Self::Id(id));
        }
        let own = text.strip_prefix(tenant.as_str()).and_then(|rest| rest.strip_prefix('/')).unwrap_or(text);
        let named = Named::parse(own).ok()?;
        Some(Self::Name(named.name.clone(), named.tag().to_owned()))
    }

    fn is(&self, card: &SnapshotCard) -> bool {
        match self {
            Self::Id(id) => card.id == *id,
            Self::Name(name, tag) => {
                Portrait::read(card.caption.clone()).called == Some((name.clone(), tag.clone()))
            }
        }
    }
}

/// The newest snapshot of a tenant that is called so. Looks at the disk.
pub(in crate::e2b) async fn find(
    desk: &Desk,
    tenant: &Tenant,
    asked: &str,
) -> Result<Option<SnapshotCard>, No> {
    let Some(called) = Called::parse(tenant, asked) else { return Ok(None) };
    let all = desk.keeper().snapshots(tenant).await.map_err(|error| No::kept(&error, ""))?;
    Ok(all.into_iter().rev().find(|card| called.is(card)))
}

/// Whether a tenant has a snapshot of this name, whatever its tag. Looks at the disk.
pub(in crate::e2b) async fn has_name(desk: &Desk, tenant: &Tenant, name: &str) -> Result<bool, No> {
    let all = desk.keeper().snapshots(tenant).await.map_err(|error| No::kept(&error, ""))?;
    let called = |card: SnapshotCard| Portrait::read(card.caption).called;
    Ok(all.into_iter().filter_map(called).any(|(other, _)| other == name))
}

/// `POST /sandboxes/{id}/snapshots`.
pub(in crate::e2b) async fn take(
    desk: &Arc<Desk>,
    tenant: &Tenant,
    id: &str,
    request: Request,
) -> Result<Response<Body>, No> {
    let Asked { name, memory } = body::read(request).await?;
    if memory == Some(false) {
        return Err(No::bad("memory: false is refused: blastbox keeps a sandbox with its memory")
            .coded("snapshot_filesystem_only_disabled"));
    }
    let called = name.map(|name| free_name(desk, tenant, &name)).transpose()?;
    let (sandbox, _) = desk.own(tenant, id)?;
    let (desk, tenant, id) = (Arc::clone(desk), tenant.clone(), id.to_owned());
    // Whoever goes away meanwhile leaves a snapshot that is whole and can be found.
    let taken = tokio::spawn(async move {
        let (portrait, _held) = Portrait::of(&sandbox, called.clone());
        let caption = portrait.write()?;
        let taken = desk.keeper().snapshot(&tenant, &sandbox.box_id, Some(caption)).await;
        let card = taken.map_err(|error| refused(&desk, &error, &id))?;
        sandbox.note("info", "snapshot taken", json!({ "snapshotID": card.id.as_str() }));
        if let Some((name, tag)) = called {
            replace(&desk, &tenant, &Called::Name(name, tag), &card).await;
        }
        Ok(show(&tenant, &card))
    });
    let shown = taken.await.unwrap_or_else(|_| Err(No::defect()))?;
    Ok(Answer(StatusCode::CREATED, shown).into_response())
}

/// A name that is nobody else's.
fn free_name(desk: &Desk, tenant: &Tenant, asked: &str) -> Result<(String, String), No> {
    let own = asked.strip_prefix(tenant.as_str()).and_then(|rest| rest.strip_prefix('/')).unwrap_or(asked);
    let named = Named::parse(own)?;
    if template::is_the_operators(&named.name, &desk.hall().images) {
        return Err(No::new(
            403,
            format!("'{}' is a template of the operator; choose another name", named.name),
        ));
    }
    if desk.templates().is_ok_and(|templates| templates.has(tenant, &named.name)) {
        return Err(No::new(
            409,
            format!("'{}' is a template that you have built; choose another name", named.name),
        ));
    }
    Ok((named.name.clone(), named.tag().to_owned()))
}

/// Takes away what had the name before: the newest is meant by it, and nothing leads to the others.
async fn replace(desk: &Desk, tenant: &Tenant, called: &Called, card: &SnapshotCard) {
    let Ok(all) = desk.keeper().snapshots(tenant).await else { return };
    let age = |card: &SnapshotCard| (card.created_at.clone(), card.id.clone());
    for older in all.iter().filter(|other| called.is(other) && age(other) < age(card)) {
        // An error: somebody else has taken it away. What stays is found by its id.
        desk.keeper().remove_snapshot(tenant, &older.id).await.ok();
    }
}

fn show(tenant: &Tenant, card: &SnapshotCard) -> Value {
    let called = Portrait::read(card.caption.clone()).called;
    match called.map(|(name, tag)| format!("{tenant}/{name}:{tag}")) {
        Some(name) => json!({ "snapshotID": name, "names": [name] }),
        None => json!({ "snapshotID": format!("{}:{TAG}", card.id), "names": [] }),
    }
}

/// `GET /snapshots`, newest first.
pub(in crate::e2b) async fn list(
    desk: &Desk,
    tenant: &Tenant,
    query: Option<&str>,
) -> Result<Response<Body>, No> {
    let query = form::pairs(query);
    let (sandbox, name) = (form::value(&query, "sandboxID"), form::value(&query, "name"));
    let limit = page::limit(form::value(&query, "limit"))?;
    let after = form::value(&query, "nextToken").map(page::place).transpose()?;
    // Where no tag is said, any is meant.
    let any_tag = name.is_some_and(|name| !name.contains(':'));
    let called = name.map(|name| Called::parse(tenant, name));
    let all = desk.keeper().snapshots(tenant).await.map_err(|error| No::kept(&error, ""))?;
    let fits = |card: &SnapshotCard| {
        let named = match &called {
            None => true,
            Some(Some(Called::Name(name, _))) if any_tag => {
                Portrait::read(card.caption.clone()).called.is_some_and(|(other, _)| other == *name)
            }
            Some(Some(called)) => called.is(card),
            Some(None) => false,
        };
        named && sandbox.is_none_or(|id| name_of(&card.of) == id)
    };
    let found = all.into_iter().filter(fits).map(|card| (format!("{} {}", card.created_at, card.id), card));
    let (shown, next) = page::cut(found.collect(), Order::NewestFirst, limit, after.as_deref());
    let shown: Vec<Value> = shown.iter().map(|(_, card)| show(tenant, card)).collect();
    let mut response = Answer(StatusCode::OK, Value::from(shown)).into_response();
    response.headers_mut().extend(next);
    Ok(response)
}

/// `DELETE /templates/{snapshotID}`, where that is a snapshot.
pub(in crate::e2b) async fn remove(
    desk: &Desk,
    tenant: &Tenant,
    card: &SnapshotCard,
    asked: &str,
) -> Result<Response<Body>, No> {
    match desk.keeper().remove_snapshot(tenant, &card.id).await {
        Ok(()) => Ok(StatusCode::NO_CONTENT.into_response()),
        Err(KeepError::NotFound) => Err(No::new(404, format!("snapshot '{}' not found", echo(asked)))),
        Err(error) => Err(No::kept(&error, asked)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_called_by_its_id_or_its_name_with_or_without_namespace_and_tag() {
        let tenant: Tenant = "team".parse().unwrap();
        let id = SnapshotId::from_random([7; 20]);
        for text in [id.to_string(), format!("{id}:default")] {
            assert_eq!(Called::parse(&tenant, &text), Some(Called::Id(id.clone())));
        }
        let mine = |tag: &str| Some(Called::Name("mine".to_owned(), tag.to_owned()));
        for text in ["mine", "mine:default", "team/mine", "team/mine:default", "Mine"] {
            assert_eq!(Called::parse(&tenant, text), mine("default"), "{text}");
        }
        assert_eq!(Called::parse(&tenant, "team/mine:v2"), mine("v2"));
        // What is in another's namespace is not there.
        for text in ["other/mine", "team/", "../mine", ""] {
            assert_eq!(Called::parse(&tenant, text), None, "{text}");
        }
    }
}
