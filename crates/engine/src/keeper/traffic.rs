//! What boxes do with their network: written down, told to whoever follows, and changed by whoever owns the box.
//!
//! Every connection and every question, allowed and denied, is told in a ring of its own ([`House::traffic`]): a box that
//! asks for names all day must not push what happens to other boxes out of everybody's.

use std::sync::Arc;

use blastbox_policy::{RuleChange, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::egress::Record;
use blastbox_wire::event::{Event, Label};

use super::cards::Tenant;
use super::error::KeepError;
use super::events::{EventReader, Happened};
use super::face::{Keeper, to_its_end, whose};
use super::house::House;
use super::kept::Kept;

impl Keeper {
    /// Every connection and question of the boxes of one tenant or of all: after this event, as far as it is kept, and
    /// from now on.
    #[must_use]
    pub fn traffic_after(&self, tenant: Option<&Tenant>, after: Option<u64>) -> EventReader {
        self.0.traffic.subscribe(tenant, after)
    }

    /// The policy of a box as it is now. Does not count as a request.
    pub fn policy(&self, tenant: &Tenant, id: &BoxId) -> Result<Arc<SealedPolicy>, KeepError> {
        Ok(self.0.find(tenant, id)?.policy())
    }

    /// Changes what a box may reach: all of it or nothing. New connections are held against the new rules, and open ones
    /// that these do not allow in the same way are cut. Written into the ledger before.
    pub async fn change_rules(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        changes: Vec<RuleChange>,
    ) -> Result<Arc<SealedPolicy>, KeepError> {
        let kept = self.0.find(tenant, id)?;
        kept.touch()?;
        let house = Arc::clone(&self.0);
        to_its_end(async move { change(&house, &kept, &changes).await }).await
    }
}

async fn change(house: &House, kept: &Kept, changes: &[RuleChange]) -> Result<Arc<SealedPolicy>, KeepError> {
    if !kept.live.has_gateway() {
        return Err(KeepError::NoNetwork);
    }
    let _one_at_a_time = kept.changing.lock().await;
    let before = kept.policy();
    let policy = before.changed(changes).map_err(KeepError::BadRules)?;
    if policy == *before {
        return Ok(before);
    }
    let (allowed, denied) = words(changes);
    let labels = |words: &[String]| words.iter().map(|word| Label::new(word)).collect();
    let (from, to) = (before.digest(), policy.digest());
    let event = Event::RulesChanged { allowed: labels(&allowed), denied: labels(&denied), to };
    house.pen.announce(Some(&kept.about()), &event)?;
    if let Err(error) = kept.live.change_rules(&policy).await {
        // Announced, but not so: the rules before hold, or there is no gateway any more.
        let undone = Event::RulesChanged { allowed: Vec::new(), denied: Vec::new(), to: from };
        house.pen.record(&kept.about(), &undone);
        return Err(KeepError::RulesNotChanged(error));
    }
    kept.set_policy(policy);
    let what = Happened::RulesChanged { allowed, denied, policy: to.to_string() };
    house.hub.tell(whose(kept), what.clone());
    house.traffic.tell(whose(kept), what);
    Ok(kept.policy())
}

/// Changes as `HOST:PORT`, for people.
fn words(changes: &[RuleChange]) -> (Vec<String>, Vec<String>) {
    let (mut allowed, mut denied) = (Vec::new(), Vec::new());
    for change in changes {
        match change {
            RuleChange::Allow(rule) => {
                allowed.extend(rule.ports().iter().map(|port| format!("{}:{port}", rule.host())));
            }
            RuleChange::Deny(gone) => denied.push(match gone.port {
                Some(port) => format!("{}:{port}", gone.host),
                None => gone.host.to_string(),
            }),
        }
    }
    (allowed, denied)
}

/// Writes down what a gateway told, and tells it to whoever listens. The gateway bounds how much there is.
pub(crate) fn tell_network(house: &House, kept: &Kept, news: Vec<Record>) {
    for record in news {
        house.pen.record(&kept.about(), &event(&record));
        let what = happened(record);
        if let Happened::NetworkDenied { .. }
        | Happened::NetworkOpened { .. }
        | Happened::NetworkClosed { .. } = what
        {
            house.hub.tell(whose(kept), what.clone());
        }
        house.traffic.tell(whose(kept), what);
    }
}

fn event(record: &Record) -> Event {
    match record {
        Record::Question { name, kind, denied: None, count } => {
            Event::NameAsked { name: Label::new(name), kind_asked: *kind, count: *count }
        }
        Record::Question { name, denied: Some(reason), count, .. } => Event::NetworkDenied {
            target: Label::new(name),
            port: 53,
            reason: Label::new(reason.as_str()),
            count: *count,
        },
        Record::Denied { target, port, reason, count, .. } => Event::NetworkDenied {
            target: Label::new(target),
            port: *port,
            reason: Label::new(reason.as_str()),
            count: *count,
        },
        Record::Opened { flow, target, port, address, rule, .. } => Event::NetworkOpened {
            flow: *flow,
            target: Label::new(target),
            port: *port,
            address: *address,
            rule: Label::new(rule),
        },
        Record::Closed { flow, target, port, sent, received, millis, reason } => Event::NetworkClosed {
            flow: *flow,
            target: Label::new(target),
            port: *port,
            sent: *sent,
            received: *received,
            millis: *millis,
            reason: reason.map(|reason| Label::new(reason.as_str())),
        },
        Record::Lent { flow, secret, target, port, request } => Event::SecretLent {
            flow: *flow,
            secret: Label::new(secret),
            target: Label::new(target),
            port: *port,
            request: Label::new(request),
        },
        Record::Lost { count } => Event::NetworkUntold { count: *count },
    }
}

fn happened(record: Record) -> Happened {
    match record {
        Record::Question { name, kind, denied: None, count } => {
            Happened::NameAsked { target: name, kind_asked: kind, count }
        }
        Record::Question { name, denied: Some(reason), count, .. } => {
            Happened::NetworkDenied { target: name, port: 53, reason: reason.as_str().to_owned(), count }
        }
        Record::Denied { target, port, reason, count, .. } => {
            Happened::NetworkDenied { target, port, reason: reason.as_str().to_owned(), count }
        }
        Record::Opened { flow, target, port, address, rule, .. } => {
            Happened::NetworkOpened { flow, target, port, address, rule }
        }
        Record::Closed { flow, target, port, sent, received, millis, reason } => {
            let reason = reason.map(|reason| reason.as_str().to_owned());
            Happened::NetworkClosed { flow, target, port, sent, received, millis, reason }
        }
        Record::Lent { flow, secret, target, port, request } => {
            Happened::SecretLent { flow, secret, target, port, request }
        }
        Record::Lost { count } => Happened::NetworkUntold { count },
    }
}
