//! What boxes do with their network: written down, told to whoever follows, and changed by whoever owns the box.
//!
//! Every connection and every question, allowed and denied, is told in a ring of its own ([`House::traffic`]). Connections
//! and what was denied are told to whoever listens to everything as well; questions that were answered are not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::{RuleChange, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::egress::{Carried, Record};
use blastbox_wire::event::{Event, Label};
use tokio::time::{Instant, sleep_until};

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

    /// When a box ends, for people. The timeout of its policy is for a box of one command; this is the clock that it
    /// really lives by. Does not count as a request.
    pub fn ends(&self, tenant: &Tenant, id: &BoxId) -> Result<String, KeepError> {
        Ok(self.0.find(tenant, id)?.fate().clock.words())
    }

    /// Changes what a box may reach: all of it or nothing. New connections are held against the new rules, and open ones
    /// that these do not allow in the same way are cut. Written into the ledger before.
    pub async fn change_rules(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        changes: Vec<RuleChange>,
    ) -> Result<Arc<SealedPolicy>, KeepError> {
        let changed = self.change_rules_from(tenant, id, None, changes).await?;
        // Where nothing was expected, nothing else can have been found.
        changed.map_or_else(|| self.policy(tenant, id), Ok)
    }

    /// The same, if the box still has the policy that the changes were thought of for. `None`: it has another by now, and
    /// nothing was changed.
    pub async fn change_rules_from(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        expected: Option<Arc<SealedPolicy>>,
        changes: Vec<RuleChange>,
    ) -> Result<Option<Arc<SealedPolicy>>, KeepError> {
        let kept = self.0.find(tenant, id)?;
        kept.touch()?;
        let house = Arc::clone(&self.0);
        to_its_end(async move { change(&house, &kept, expected.as_deref(), &changes).await }).await
    }
}

async fn change(
    house: &House,
    kept: &Kept,
    expected: Option<&SealedPolicy>,
    changes: &[RuleChange],
) -> Result<Option<Arc<SealedPolicy>>, KeepError> {
    if !kept.live.has_gateway() {
        return Err(KeepError::NoNetwork);
    }
    let _one_at_a_time = kept.changing.lock().await;
    // Meanwhile it may have been laid on disk, with the rules before.
    kept.touch()?;
    let before = kept.policy();
    if expected.is_some_and(|expected| *expected != *before) {
        return Ok(None);
    }
    let policy = before.changed(changes).map_err(KeepError::BadRules)?;
    if policy == *before {
        return Ok(Some(before));
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
    Ok(Some(kept.policy()))
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

/// Records that are written before others have their turn: each may be a write to the disk.
const AT_ONCE: usize = 64;

/// Before a ledger that took nothing is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// What a gateway told, and the ledger does not have yet.
///
/// A secret is lent only if that is recorded: a ledger that takes nothing makes the gateway wait, until it has no place for
/// another record and lends nothing more.
#[derive(Debug)]
pub(crate) struct Untold {
    waiting: VecDeque<Record>,
    at: Instant,
}

impl Default for Untold {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), at: Instant::now() }
    }
}

impl Untold {
    pub(crate) fn add(&mut self, news: Vec<Record>) {
        self.waiting.extend(news);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// When it is worth a try.
    pub(crate) fn due(&self) -> impl Future<Output = ()> + use<> {
        sleep_until(self.at)
    }

    /// Writes some of it down, in order, and tells it to whoever listens.
    pub(crate) fn write(&mut self, house: &House, kept: &Kept) {
        for _ in 0..AT_ONCE {
            let Some(record) = self.waiting.front() else { return };
            if house.pen.announce(Some(&kept.about()), &event(record)).is_err() {
                self.at = Instant::now() + AGAIN;
                return;
            }
            if let Some(record) = self.waiting.pop_front() {
                tell(house, kept, record);
            }
        }
    }

    /// Writes all of it down, as far as the ledger takes it: its box is gone and cannot wait.
    pub(crate) fn write_all(&mut self, house: &House, kept: &Kept) {
        for record in self.waiting.drain(..) {
            house.pen.record(&kept.about(), &event(&record));
            tell(house, kept, record);
        }
    }
}

fn tell(house: &House, kept: &Kept, record: Record) {
    let what = happened(record);
    if let Happened::NetworkDenied { reason, count, .. } = &what {
        house.count(|metrics| metrics.kept_from(reason, u64::from(*count)));
    }
    if let Happened::NetworkDenied { .. } | Happened::NetworkOpened { .. } | Happened::NetworkClosed { .. } =
        what
    {
        house.hub.tell(whose(kept), what.clone());
    }
    house.traffic.tell(whose(kept), what);
}

fn event(record: &Record) -> Event {
    match record {
        Record::Question { name, kind, denied: None, count } => {
            Event::NameAsked { name: Label::new(name), kind_asked: *kind, count: *count }
        }
        Record::Question { name, kind, denied: Some(reason), count } => Event::NetworkDenied {
            flow: 0,
            door: None,
            target: Label::new(name),
            port: 53,
            kind_asked: Some(*kind),
            address: None,
            reason: Label::new(reason.as_str()),
            count: *count,
            carried: Carried::default(),
        },
        Record::Denied { flow, door, target, port, address, reason, count, carried } => {
            Event::NetworkDenied {
                flow: *flow,
                door: Some(*door),
                target: Label::new(target),
                port: *port,
                kind_asked: None,
                address: *address,
                reason: Label::new(reason.as_str()),
                count: *count,
                carried: *carried,
            }
        }
        Record::Opened { flow, door, target, port, address, rule } => Event::NetworkOpened {
            flow: *flow,
            door: Some(*door),
            target: Label::new(target),
            port: *port,
            address: *address,
            rule: Label::new(rule),
        },
        Record::Closed { flow, target, port, carried, reason } => Event::NetworkClosed {
            flow: *flow,
            target: Label::new(target),
            port: *port,
            carried: *carried,
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
        Record::Question { name, kind, denied: Some(reason), count } => Happened::NetworkDenied {
            flow: 0,
            door: None,
            target: name,
            port: 53,
            kind_asked: Some(kind),
            address: None,
            reason: reason.as_str().to_owned(),
            count,
            carried: Carried::default(),
        },
        Record::Denied { flow, door, target, port, address, reason, count, carried } => {
            let (door, kind_asked, reason) = (Some(door), None, reason.as_str().to_owned());
            Happened::NetworkDenied { flow, door, target, port, kind_asked, address, reason, count, carried }
        }
        Record::Opened { flow, door, target, port, address, rule } => {
            Happened::NetworkOpened { flow, door, target, port, address, rule }
        }
        Record::Closed { flow, target, port, carried, reason } => {
            let reason = reason.map(|reason| reason.as_str().to_owned());
            Happened::NetworkClosed { flow, target, port, carried, reason }
        }
        Record::Lent { flow, secret, target, port, request } => {
            Happened::SecretLent { flow, secret, target, port, request }
        }
        Record::Lost { count } => Happened::NetworkUntold { count },
    }
}
