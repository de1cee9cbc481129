//! The network of a sandbox that lives: from the rules that its box has to those that its owner wants now.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use blastbox_engine::keeper::{KeepError, Tenant};
use blastbox_policy::{AllowRule, BadRule, Denied, HostPattern, NetworkMode, RuleChange, SealedPolicy};
use serde_json::json;

use super::headers::{self, Headers};
use super::network::{Asked, Reaches, rules_for};
use super::{body, empty};
use crate::config::Internet;
use crate::e2b::desk::Desk;
use crate::e2b::no::No;
use crate::e2b::ports::Front;
use crate::e2b::secrets;
use crate::trouble::line;

/// What a box may reach now, by the policy that holds for it.
pub(super) fn reached(policy: &SealedPolicy) -> Reaches {
    let rules = policy.network();
    match rules.mode {
        NetworkMode::Off => Reaches::Nothing,
        NetworkMode::Open => Reaches::Everything,
        NetworkMode::Allow => {
            let mut hosts: Vec<HostPattern> = Vec::new();
            for rule in &rules.allow {
                if !hosts.contains(rule.host()) {
                    hosts.push(rule.host().clone());
                }
            }
            Reaches::Named(hosts)
        }
    }
}

/// `PUT /sandboxes/{id}/network`: what is left out is cleared. What rules can say is done, all of it or nothing; what was
/// decided when the sandbox was made is told so, and never answered as if it had been done.
pub(super) async fn replace(
    desk: &Desk,
    tenant: &Tenant,
    id: &str,
    request: Request,
) -> Result<Response<Body>, No> {
    desk.own(tenant, id)?;
    let asked: Asked = body::read(request).await?;
    for _ in 0..TRIES {
        if let Some(answer) = replace_once(desk, tenant, id, &asked).await? {
            return Ok(answer);
        }
    }
    Err(No::new(409, "others change the network of this sandbox at the same time: try again"))
}

/// `None`: somebody else was faster, and the steps to take are others now.
async fn replace_once(
    desk: &Desk,
    tenant: &Tenant,
    id: &str,
    asked: &Asked,
) -> Result<Option<Response<Body>>, No> {
    let (sandbox, _) = desk.own(tenant, id)?;
    let (keeper, kept) = (desk.keeper(), |error: KeepError| No::kept(&error, id));
    let policy = keeper.policy(tenant, &sandbox.box_id).map_err(kept)?;
    let now = reached(&policy);
    // Left out is cleared, not given anew: here the operator's default means nothing.
    let operator = match (&now, asked.allow_internet_access) {
        (Reaches::Everything, _) | (_, Some(true)) => desk.hall().internet,
        (Reaches::Nothing | Reaches::Named(_), Some(false) | None) => Internet::Closed,
    };
    let wanted = asked.reaches(None, operator)?;
    let fill = |name: &str| secrets::fill(desk, tenant, name);
    if headers::are_bound(&policy) || !Headers::of(Some(asked), &fill)?.is_empty() {
        return Err(sealed("which headers the requests of a sandbox get"));
    }
    if asked.allow_public_traffic.is_some_and(|public| public != sandbox.traffic_token.is_none()) {
        return Err(sealed("whether the ports of a sandbox are public"));
    }
    if ![Front::default(), sandbox.front.clone()].contains(&asked.front()?) {
        return Err(sealed("how servers in a sandbox are spoken to"));
    }
    let hosts = match (&now, &wanted) {
        (Reaches::Everything, Reaches::Everything) => return Ok(Some(empty())),
        (Reaches::Everything, _) | (_, Reaches::Everything) => {
            return Err(sealed("whether a sandbox reaches the whole internet"));
        }
        (Reaches::Nothing | Reaches::Named(_), Reaches::Nothing) => &[],
        (Reaches::Nothing | Reaches::Named(_), Reaches::Named(hosts)) => hosts.as_slice(),
    };
    let changes = changes(&policy.network().allow, hosts).map_err(|error| No::bad(line(&error)))?;
    if !changes.is_empty() {
        match keeper.change_rules_from(tenant, &sandbox.box_id, Some(policy), changes).await {
            Ok(None) => return Ok(None),
            Ok(Some(_)) => sandbox.note("info", "network changed", json!({ "network": wanted.show() })),
            Err(KeepError::NoNetwork) => return Err(sealed("that a sandbox has no network at all")),
            Err(error) => return Err(kept(error)),
        }
    }
    sandbox.set_internet(asked.allow_internet_access);
    Ok(Some(empty()))
}

/// How often somebody else may be faster.
const TRIES: usize = 5;

fn sealed(what: &str) -> No {
    No::new(409, format!("{what} is decided when it is made: make another one with the network you want"))
}

/// The steps from the rules that there are to the hosts that are wanted. A host whose rules are as they would be made is
/// left alone.
fn changes(now: &[AllowRule], wanted: &[HostPattern]) -> Result<Vec<RuleChange>, BadRule> {
    let named: BTreeSet<&HostPattern> = now.iter().map(AllowRule::host).collect();
    let mut gone: BTreeSet<&HostPattern> = BTreeSet::new();
    for host in &named {
        let has: Vec<&AllowRule> = now.iter().filter(|rule| rule.host() == *host).collect();
        let made = if wanted.contains(host) { rules_for(host)? } else { Vec::new() };
        if has.len() != made.len() || !made.iter().all(|rule| has.contains(&rule)) {
            gone.insert(host);
        }
    }
    // No rule goes from beneath a wildcard that stays: that one goes too, and comes back.
    loop {
        let above =
            |host: &&&HostPattern| !gone.contains(**host) && gone.iter().any(|low| is_above(host, low));
        let Some(wide) = named.iter().find(above).copied() else { break };
        gone.insert(wide);
    }
    let back = wanted.iter().filter(|host| !named.contains(host) || gone.contains(host));
    let allowed: Vec<Vec<AllowRule>> = back.map(rules_for).collect::<Result<_, _>>()?;
    let mut denied: Vec<&HostPattern> = gone.into_iter().collect();
    denied.sort_by_key(|host| match host {
        HostPattern::Under(apex) => (0, apex.as_str().len()),
        HostPattern::Exact(_) | HostPattern::Address(_) | HostPattern::Any => (1, 0),
    });
    let denied = denied.into_iter().map(|host| RuleChange::Deny(Denied { host: host.clone(), port: None }));
    Ok(denied.chain(allowed.into_iter().flatten().map(RuleChange::Allow)).collect())
}

/// Whether one names more than the other, and all of it.
fn is_above(wide: &HostPattern, narrow: &HostPattern) -> bool {
    match (wide, narrow) {
        (HostPattern::Under(_), HostPattern::Exact(name)) => wide.covers(name),
        (HostPattern::Under(above), HostPattern::Under(below)) => above != below && below.is_under(above),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use blastbox_policy::Profile;

    use super::*;

    fn named(hosts: &[&str]) -> Vec<HostPattern> {
        hosts.iter().map(|host| host.parse().unwrap()).collect()
    }

    fn policy(hosts: &[&str]) -> SealedPolicy {
        let draft = Profile::Default.draft().unwrap();
        Reaches::Named(named(hosts)).open(draft).unwrap().seal().unwrap()
    }

    #[test]
    fn the_rules_become_those_that_are_wanted_and_what_stays_is_left_alone() {
        for (before, after, steps) in [
            (&["a.test"][..], &["a.test"][..], 0),
            (&["a.test"], &["a.test", "b.test"], 2),
            (&["a.test", "8.8.8.8"], &["8.8.8.8"], 1),
            (&["a.test"], &["b.test"], 3),
            (&["a.test"], &[], 1),
            // Beneath a wildcard that stays, above one, and the wildcard itself.
            (&["*.example.com", "a.example.com"], &["*.example.com"], 4),
            (&["*.example.com", "*.b.example.com", "x.b.example.com"], &["x.b.example.com"], 2),
            (&["*.example.com", "a.example.com"], &["a.example.com"], 1),
            (&["a.example.com"], &["*.example.com"], 3),
        ] {
            let policy = policy(before);
            let changes = changes(&policy.network().allow, &named(after)).unwrap();
            assert_eq!(changes.len(), steps, "{before:?} to {after:?}: {changes:?}");
            let changed = reached(&policy.changed(&changes).unwrap());
            let mut hosts = match changed {
                Reaches::Named(hosts) => hosts,
                Reaches::Nothing => Vec::new(),
                Reaches::Everything => panic!("opened by {changes:?}"),
            };
            hosts.sort();
            let mut wanted = named(after);
            wanted.sort();
            assert_eq!(hosts, wanted);
        }
    }

    #[test]
    fn a_rule_that_was_made_otherwise_is_made_anew() {
        let policy = policy(&["a.test"]);
        let more = AllowRule::short("a.test:5432").unwrap();
        let policy = policy.changed(&[RuleChange::Allow(more)]).unwrap();
        assert_eq!(policy.network().allow.len(), 3);
        let changes = changes(&policy.network().allow, &named(&["a.test"])).unwrap();
        assert_eq!(policy.changed(&changes).unwrap().network().allow.len(), 2);
    }
}
