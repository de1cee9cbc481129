//! What a sandbox's owner says about its network. It is closed; whatever would open it is refused by name.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use blastbox_engine::keeper::Tenant;
use serde::Deserialize;
use serde_json::Value;

use super::{body, empty};
use crate::e2b::desk::Desk;
use crate::e2b::no::No;

/// SandboxNetworkConfig, and what may be updated of it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Asked {
    pub(super) allow_public_traffic: Option<bool>,
    allow_out: Option<Vec<String>>,
    /// Everything is denied already.
    #[serde(rename = "denyOut")]
    _deny_out: Option<Vec<String>>,
    egress_proxy: Option<Value>,
    mask_request_host: Option<String>,
    https_ports: Option<Vec<u16>>,
    rules: Option<BTreeMap<String, Value>>,
    #[serde(rename = "allow_internet_access")]
    allow_internet_access: Option<bool>,
}

impl Asked {
    /// Whether it leaves the network closed.
    pub(super) fn check(&self) -> Result<(), No> {
        let opens = [
            (self.allow_internet_access == Some(true), "allow_internet_access: true"),
            (self.allow_out.as_ref().is_some_and(|hosts| !hosts.is_empty()), "network.allowOut"),
            (self.egress_proxy.as_ref().is_some_and(|proxy| !proxy.is_null()), "network.egressProxy"),
            (self.rules.as_ref().is_some_and(|rules| !rules.is_empty()), "network.rules"),
            (self.mask_request_host.is_some(), "network.maskRequestHost"),
            (self.https_ports.as_ref().is_some_and(|ports| !ports.is_empty()), "network.httpsPorts"),
        ];
        match opens.iter().find(|(asked, _)| *asked) {
            Some((_, what)) => Err(refused(what)),
            None => Ok(()),
        }
    }
}

pub(super) fn refused(what: &str) -> No {
    let message = format!(
        "{what} is refused: sandboxes of this daemon have no network, and no policy opens it; leave it out, or see docs/e2b.md"
    );
    No::bad(message).coded("sandbox_create_refused")
}

/// `PUT /sandboxes/{id}/network`: what is left out is cleared, which leaves the network closed.
pub(super) async fn replace(
    desk: &Desk,
    tenant: &Tenant,
    id: &str,
    request: Request,
) -> Result<Response<Body>, No> {
    desk.own(tenant, id)?;
    let asked: Asked = body::read(request).await?;
    asked.check()?;
    Ok(empty())
}
