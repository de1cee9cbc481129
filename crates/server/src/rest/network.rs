//! `/v1/network` and `/v1/boxes/{id}/network`: what boxes do with their network, and what they may.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use blastbox_engine::keeper::{KeepError, Keeper, Tenant};
use blastbox_policy::{AllowRule, BadRule, Denied, RuleChange, SealedPolicy, to_toml};
use blastbox_wire::BoxId;
use serde::Serialize;

use super::about;
use crate::answer::Answer;
use crate::ask::RuleChanges;
use crate::caller::Caller;
use crate::sse::{self, Which};
use crate::take::{BoxPath, Given, Query};
use crate::{Hall, Trouble};

/// Most changes in one request.
const MOST_CHANGES: usize = 256;

/// Every connection and question, allowed and denied, as it happens.
pub(crate) async fn traffic(
    State(keeper): State<Keeper>,
    caller: Caller,
    query: Query,
    headers: HeaderMap,
) -> Result<Response<Body>, Trouble> {
    let query = query.only(&["after", "all", "box", "follow"])?;
    let (after, whose) = (about::seen(&query, &headers)?, about::tenant(&query, &caller)?);
    let which = match query.parsed::<BoxId>("box", "the name of a box")? {
        None => Which::All,
        Some(id) => {
            // What a box did is remembered a while after it is gone; one that never was has nothing to tell.
            if let Some(tenant) = &whose
                && let Err(error @ KeepError::NotFound) = keeper.get(tenant, &id)
            {
                return Err(error.into());
            }
            Which::Of(id)
        }
    };
    Ok(sse::events(keeper.traffic_after(whose.as_ref(), after), sse::Until::from(&query)?, which))
}

/// The rules of a box as they are now.
#[derive(Debug, Serialize)]
pub(crate) struct BoxRules {
    /// The digest of its policy.
    policy: String,
    /// Its policy as TOML.
    text: String,
}

impl BoxRules {
    fn of(policy: &SealedPolicy, ends: &str) -> Self {
        Self { policy: policy.digest().to_string(), text: annotated(policy, ends) }
    }
}

/// A policy as TOML, with what really ends the box beside the timeout that does not.
fn annotated(policy: &SealedPolicy, ends: &str) -> String {
    let text = to_toml(policy);
    let lines = text.lines().map(|line| {
        let is_timeout = line.starts_with("timeout = ");
        if is_timeout {
            format!("{line} # of `blastbox run`; this box {ends}\n")
        } else {
            format!("{line}\n")
        }
    });
    lines.collect()
}

/// The policy of a box that is kept, for people: it says when the box really ends.
pub(crate) fn policy_text(keeper: &Keeper, tenant: &Tenant, id: &BoxId) -> Result<String, KeepError> {
    Ok(annotated(&*keeper.policy(tenant, id)?, &keeper.ends(tenant, id)?))
}

pub(crate) async fn rules(
    State(keeper): State<Keeper>,
    caller: Caller,
    BoxPath(id): BoxPath,
) -> Result<Answer<BoxRules>, Trouble> {
    let ends = keeper.ends(&caller.tenant, &id)?;
    Ok(Answer::ok(BoxRules::of(&*keeper.policy(&caller.tenant, &id)?, &ends)))
}

pub(crate) async fn change(
    State(hall): State<Hall>,
    caller: Caller,
    BoxPath(id): BoxPath,
    Given(asked): Given<RuleChanges>,
) -> Result<Answer<BoxRules>, Trouble> {
    let RuleChanges { allow, deny } = asked;
    if allow.len() + deny.len() > MOST_CHANGES {
        return Err(Trouble::BadField(format!("at most {MOST_CHANGES} changes at once")));
    }
    let bad = |error: BadRule| Trouble::BadField(error.to_string());
    let deny = deny.iter().map(|text| Denied::short(text).map(RuleChange::Deny));
    let allow = allow.iter().map(|text| AllowRule::short(text).map(RuleChange::Allow));
    // What goes goes first, so that a rule can be replaced in one step.
    let changes: Vec<RuleChange> = deny.chain(allow).collect::<Result<_, _>>().map_err(bad)?;
    let policy = hall.keeper.change_rules(&caller.tenant, &id, changes).await?;
    let ends = hall.keeper.ends(&caller.tenant, &id)?;
    Ok(Answer::ok(BoxRules::of(&policy, &ends)))
}
