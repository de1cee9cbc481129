//! Sandboxes as E2B shows them. Fields that its clients need are always there.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use blastbox_engine::keeper::{BoxCard, Phase, Tenant};
use serde_json::{Value, json};

use super::rules::reached;
use crate::e2b::desk::Desk;
use crate::e2b::no::No;
use crate::e2b::sandbox::{AtTimeout, OnTraffic, Sandbox};
use crate::e2b::token::Token;

/// What SDKs take this face's "envd" for: they decide by it what they may ask.
const ENVD_VERSION: &str = "0.6.13";
/// Nobody uses it any more; it must be there.
const CLIENT: &str = "blastbox";

/// The answer of create, connect, resume and fork.
pub(in crate::e2b) fn sandbox(desk: &Desk, sandbox: &Sandbox) -> Value {
    json!({
        "templateID": sandbox.template,
        "sandboxID": sandbox.id(),
        "clientID": CLIENT,
        "envdVersion": ENVD_VERSION,
        "alias": sandbox.template,
        "envdAccessToken": sandbox.token.show_to_owner(),
        "trafficAccessToken": sandbox.traffic_token.as_ref().map(Token::show_to_owner),
        "domain": desk.hall().domain,
    })
}

/// One line of a list.
pub(super) fn listed(sandbox: &Sandbox, card: &BoxCard) -> Value {
    json!({
        "templateID": sandbox.template,
        "alias": sandbox.template,
        "sandboxID": sandbox.id(),
        "clientID": CLIENT,
        "startedAt": card.created_at,
        "endAt": card.ends_at,
        "cpuCount": sandbox.size.cpus,
        "memoryMB": sandbox.size.memory_mib,
        "diskSizeMB": sandbox.size.disk_mib,
        "metadata": card.metadata,
        "state": state(card),
        "envdVersion": ENVD_VERSION,
        "volumeMounts": sandbox.mounts.show(),
    })
}

pub(super) fn state(card: &BoxCard) -> &'static str {
    match card.phase {
        Phase::Paused => "paused",
        Phase::Provisioning | Phase::Ready | Phase::Executing | Phase::Ending | Phase::Gone => "running",
    }
}

/// `GET /sandboxes/{id}`.
pub(super) fn detail(desk: &Desk, tenant: &Tenant, id: &str) -> Result<Response<Body>, No> {
    let (sandbox, card) = desk.own(tenant, id)?;
    let mut shown = listed(&sandbox, &card);
    if let Some(fields) = shown.as_object_mut() {
        let on_timeout = match sandbox.plans.on_timeout {
            AtTimeout::Kill => "kill",
            AtTimeout::Pause => "pause",
        };
        let auto_resume = sandbox.plans.on_traffic == OnTraffic::Resume;
        fields.insert("envdAccessToken".to_owned(), json!(sandbox.token.show_to_owner()));
        fields.insert("allowInternetAccess".to_owned(), json!(sandbox.internet()));
        fields.insert("domain".to_owned(), json!(desk.hall().domain));
        fields.insert("lifecycle".to_owned(), json!({ "autoResume": auto_resume, "onTimeout": on_timeout }));
        let public = sandbox.traffic_token.is_none();
        // By the rules that hold now: they may have been changed.
        let policy = desk.keeper().policy(tenant, &sandbox.box_id);
        let mut network =
            policy.map_or_else(|_| sandbox.plans.reaches.show(), |policy| reached(&policy).show());
        if let Some(network) = network.as_object_mut() {
            network.insert("allowPublicTraffic".to_owned(), json!(public));
            sandbox.front.show(network);
        }
        fields.insert("network".to_owned(), network);
        if card.phase == Phase::Paused {
            fields.insert("pauseMode".to_owned(), json!("full"));
        }
    }
    Ok(super::json(StatusCode::OK, shown))
}
