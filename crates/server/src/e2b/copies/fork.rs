//! `POST /sandboxes/{id}/fork`: sandboxes that begin as what another one is now, all from one copy of it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use blastbox_engine::keeper::{BoxCard, MOST_FORKS, Tenant};
use serde::Deserialize;
use serde_json::{Value, json};

use super::portrait::Portrait;
use super::refused;
use crate::answer::Answer;
use crate::e2b::control::{body, show};
use crate::e2b::desk::{Desk, PAUSED_FOR};
use crate::e2b::ending::Ending;
use crate::e2b::no::No;
use crate::e2b::sandbox::{Envs, Made, Plans, Sandbox, name_of};
use crate::e2b::token::Token;

/// What is assumed where no time is given.
const LIFE: i64 = 15;
/// As many as E2B takes in one request.
const MOST: usize = 100;

#[derive(Debug, Deserialize)]
struct Asked {
    timeout: Option<i64>,
    count: Option<usize>,
}

pub(in crate::e2b) async fn fork(
    desk: &Arc<Desk>,
    tenant: &Tenant,
    id: &str,
    request: Request,
) -> Result<Response<Body>, No> {
    let Asked { timeout, count } = body::read(request).await?;
    let life = body::seconds("timeout", timeout.unwrap_or(LIFE))?;
    let count = count.unwrap_or(1);
    if !(1..=MOST).contains(&count) {
        return Err(No::bad(format!("count = {count} is out of range; permitted is 1 to {MOST}")));
    }
    let (source, _) = desk.own(tenant, id)?;
    // Whoever goes away before it is told of them leaves none: the keeper ends what it cannot hand over.
    let forked = forks(desk, &source, id, count, life).await?;
    Ok(Answer(StatusCode::CREATED, Value::from(forked)).into_response())
}

async fn forks(
    desk: &Arc<Desk>,
    source: &Sandbox,
    id: &str,
    count: usize,
    life: Duration,
) -> Result<Vec<Value>, No> {
    let (portrait, held) = Portrait::of(source, None);
    let made = count.min(MOST_FORKS);
    let forks = desk.keeper().fork_each(&source.tenant, &source.box_id, made, life, PAUSED_FOR).await;
    let forks = forks.map_err(|error| refused(desk, &error, id))?;
    drop(held);
    let begun = forks.into_iter().map(|fork| {
        let card = fork.map_err(|error| No::kept(&error, id))?;
        take_in(desk, source, &portrait, &card, life)
    });
    let beyond =
        (made..count).map(|_| Err(No::new(429, format!("at most {MOST_FORKS} forks are made at once"))));
    let shown = begun.chain(beyond).map(|fork| match fork {
        Ok(sandbox) => json!({ "sandbox": sandbox }),
        Err(no) => json!({ "error": no.shown() }),
    });
    Ok(shown.collect())
}

fn take_in(
    desk: &Arc<Desk>,
    source: &Sandbox,
    portrait: &Portrait,
    card: &BoxCard,
    life: Duration,
) -> Result<Value, No> {
    let ending = Ending::of(desk.keeper(), &source.tenant, &card.id);
    let token = || Token::new().ok_or_else(No::defect);
    let mut sandbox = Sandbox::new(Made {
        box_id: card.id.clone(),
        tenant: source.tenant.clone(),
        template: source.template.clone(),
        token: token()?,
        traffic_token: source.traffic_token.as_ref().map(|_| token()).transpose()?,
        size: source.size,
        has_root: source.has_root,
        envs: Envs(portrait.envs.clone()),
        plans: Plans { internet: source.internet(), ..source.plans.clone() },
        life,
        workdir: portrait.workdir.clone(),
    });
    sandbox.front = portrait.front.clone();
    portrait.hang(desk.keeper(), &sandbox);
    let sandbox = desk.add(sandbox);
    ending.keep();
    sandbox.note("info", "sandbox forked", json!({ "sandboxID": name_of(&card.id), "from": source.id() }));
    Ok(show::sandbox(desk, &sandbox))
}
