//! The sandboxes that were made through this face, and what follows from what happens to them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

use blastbox_engine::LiveBox;
use blastbox_engine::keeper::{
    BoxCard, EventItem, EventReader, Happened, KeepError, Keeper, KeeperEvent, Phase, Tenant,
};
use blastbox_images::Image;
use blastbox_wire::BoxId;
use serde_json::json;

use super::apart::Apart;
use super::control::once::Promises;
use super::copies;
use super::no::No;
use super::passport::Passports;
use super::sandbox::{OnTraffic, Sandbox, name_of};
use super::templates::{Lying, Templates};
use crate::Hall;
use crate::ask::open_stored;

/// How long a paused sandbox is kept.
pub(super) const PAUSED_FOR: Duration = Duration::from_secs(30 * 86_400);

/// Why there are no templates of tenants.
#[derive(Debug)]
enum Unopened {
    /// The daemon has no place for them.
    NoPlace,
    /// They are there, and cannot be read.
    Unread(String),
}

impl Unopened {
    fn answer(&self) -> No {
        let why = match self {
            Self::NoPlace => "there is no place for them",
            Self::Unread(why) => why,
        };
        No::new(
            500,
            format!(
                "the list of templates cannot be read: {why}; the operator finds it in `e2b` of the state directory"
            ),
        )
    }
}

fn opened(path: Option<&Path>, lying: Lying) -> Result<Arc<Templates>, Unopened> {
    let path = path.ok_or(Unopened::NoPlace)?;
    let opened = Templates::open(path.to_path_buf(), lying);
    opened.map(Arc::new).map_err(|error| Unopened::Unread(error.to_string()))
}

/// Every sandbox of this face.
#[derive(Debug)]
pub(super) struct Desk {
    hall: Hall,
    all: Mutex<HashMap<String, Arc<Sandbox>>>,
    following: Once,
    pub(super) promises: Promises,
    /// Where tenants wait for the disk.
    pub(super) apart: Apart,
    /// An error: why what tenants have built cannot be had.
    templates: Result<Arc<Templates>, Unopened>,
    /// What the next daemon is told of sandboxes that outlive this one. `None`: there is no place for it.
    passports: Option<Passports>,
}

impl Desk {
    pub(super) fn new(hall: Hall) -> Self {
        let keeper = hall.keeper.clone();
        let lying = Lying::known_by(move || keeper.images_on_disk());
        let templates = opened(hall.templates.as_deref(), lying);
        let passports = hall.templates.as_deref().map(Passports::beside);
        let (all, following, promises) = (Mutex::default(), Once::new(), Promises::default());
        Self { hall, all, following, promises, apart: Apart::default(), templates, passports }
    }

    /// Takes in the sandboxes of an earlier daemon whose boxes are there: they are paused to disk. Looks at the disk, and is for the start.
    pub(super) fn take_up(self: &Arc<Self>) {
        let lives = |tenant: &Tenant, id: &BoxId| self.keeper().get(tenant, id).is_ok();
        let found = self.passports.as_ref().map(|passports| passports.take_up(lives));
        for sandbox in found.into_iter().flatten() {
            sandbox.note("info", "sandbox taken over from an earlier daemon", json!({}));
            self.add(sandbox);
        }
    }

    /// Writes down what is known of a sandbox now, for the next daemon.
    pub(super) async fn document(&self, sandbox: &Arc<Sandbox>) {
        let Some(passports) = self.passports.clone() else { return };
        let documented = Arc::clone(sandbox);
        let written = tokio::task::spawn_blocking(move || passports.write(&documented)).await;
        // A full disk. The sandbox is none the worse as long as this daemon runs.
        if let Ok(Err(error)) = written {
            let why = "the next daemon will not know this sandbox: it could not be written down";
            sandbox.note("warn", why, json!({ "error": error.to_string() }));
        }
    }

    /// Forgets one that is over.
    fn forget(&self, sandbox: &Arc<Sandbox>) {
        self.all().remove(sandbox.id());
        if let Some(passports) = self.passports.clone() {
            let sandbox = Arc::clone(sandbox);
            drop(tokio::task::spawn_blocking(move || passports.remove(&sandbox)));
        }
    }

    pub(super) fn hall(&self) -> &Hall {
        &self.hall
    }

    /// What tenants build.
    pub(super) fn templates(&self) -> Result<&Arc<Templates>, No> {
        self.templates.as_ref().map_err(Unopened::answer)
    }

    /// The same, for whoever may mean another template: nothing, where there is no place for what tenants build.
    pub(super) fn built(&self) -> Result<Option<&Arc<Templates>>, No> {
        match &self.templates {
            Err(Unopened::NoPlace) => Ok(None),
            Ok(_) | Err(Unopened::Unread(_)) => self.templates().map(Some),
        }
    }

    /// The image of a sandbox that was one before: the operator's, or what a build made. `None`: it is not there any more.
    pub(super) async fn image_called(&self, label: String) -> Option<Image> {
        let (images, built) = (Arc::clone(&self.hall.images), self.templates.as_ref().ok().cloned());
        let found = move || match open_stored(&label, &images) {
            Ok(image) => Some(image),
            Err(_) => built?.labelled(&label),
        };
        tokio::task::spawn_blocking(found).await.ok().flatten()
    }

    pub(super) fn keeper(&self) -> &Keeper {
        &self.hall.keeper
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Sandbox>>> {
        // Nobody panics while holding it.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a new one in.
    pub(super) fn add(self: &Arc<Self>, sandbox: Sandbox) -> Arc<Sandbox> {
        self.following.call_once(|| {
            let events = self.keeper().subscribe(None);
            tokio::spawn(follow(Arc::downgrade(self), events));
        });
        let sandbox = Arc::new(sandbox);
        self.all().insert(sandbox.id().to_owned(), Arc::clone(&sandbox));
        if let Some(passports) = self.passports.clone() {
            let sandbox = Arc::clone(&sandbox);
            // Nobody waits for it: only a daemon that is killed in this very moment misses it.
            drop(tokio::task::spawn_blocking(move || passports.write(&sandbox)));
        }
        // One that ended before it was taken in has no other end to be heard of.
        if self.keeper().get(&sandbox.tenant, &sandbox.box_id).is_err() {
            self.forget(&sandbox);
        }
        sandbox
    }

    fn find(&self, id: &str) -> Option<Arc<Sandbox>> {
        self.all().get(id).cloned()
    }

    /// The sandboxes of a tenant that are there, each with its card.
    pub(super) fn of(&self, tenant: &Tenant) -> Vec<(Arc<Sandbox>, BoxCard)> {
        let cards = self.keeper().list(tenant).into_iter().filter(is_there);
        let all = self.all();
        cards.filter_map(|card| all.get(name_of(&card.id)).cloned().map(|sandbox| (sandbox, card))).collect()
    }

    /// Those too of which something may still run: they are about to end.
    pub(super) fn not_yet_gone(&self, tenant: &Tenant) -> Vec<Arc<Sandbox>> {
        let cards = self.keeper().list(tenant);
        let all = self.all();
        cards.iter().filter_map(|card| all.get(name_of(&card.id)).cloned()).collect()
    }

    /// One of a tenant's own sandboxes. What belongs to somebody else is not there.
    pub(super) fn own(&self, tenant: &Tenant, id: &str) -> Result<(Arc<Sandbox>, BoxCard), No> {
        let sandbox = self.find(id).filter(|sandbox| sandbox.tenant == *tenant);
        let sandbox = sandbox.ok_or_else(|| No::no_sandbox(id))?;
        let card = self.card(&sandbox).ok_or_else(|| No::no_sandbox(id))?;
        Ok((sandbox, card))
    }

    pub(super) fn card(&self, sandbox: &Sandbox) -> Option<BoxCard> {
        let found = self.keeper().get(&sandbox.tenant, &sandbox.box_id).ok();
        found.map(|(card, _)| card).filter(is_there)
    }

    /// A sandbox that is there, running or to be woken by traffic, whoever asks: what it brings is looked at next.
    pub(super) fn reach(&self, id: &str) -> Result<Arc<Sandbox>, No> {
        let sandbox = self.find(id).ok_or_else(|| No::gone(id))?;
        let card = self.card(&sandbox).ok_or_else(|| No::gone(id))?;
        match (card.phase, sandbox.plans.on_traffic) {
            (Phase::Ready | Phase::Executing, _) | (Phase::Paused, OnTraffic::Resume) => Ok(sandbox),
            (Phase::Paused, OnTraffic::StayPaused)
            | (Phase::Provisioning | Phase::Ending | Phase::Gone, _) => Err(No::gone(id)),
        }
    }

    /// Whether it runs. Wakes nobody.
    pub(super) fn runs(&self, sandbox: &Sandbox) -> bool {
        self.card(sandbox).is_some_and(|card| matches!(card.phase, Phase::Ready | Phase::Executing))
    }

    /// Lets one that traffic wakes go on. Only for whoever has shown that it may: otherwise anybody could keep every
    /// paused sandbox awake.
    pub(super) async fn wake(&self, sandbox: &Arc<Sandbox>) -> Result<(), No> {
        let id = sandbox.id();
        match (self.card(sandbox).map(|card| card.phase), sandbox.plans.on_traffic) {
            (Some(Phase::Ready | Phase::Executing), _) => Ok(()),
            (Some(Phase::Paused), OnTraffic::Resume) => {
                self.resume(sandbox, sandbox.life()).await.map(|_| ()).map_err(|_| No::gone(id))
            }
            (None | Some(_), _) => Err(No::gone(id)),
        }
    }

    /// Lets a paused sandbox go on, for so long. Whether it was this call that did.
    pub(super) async fn resume(&self, sandbox: &Arc<Sandbox>, life: Duration) -> Result<bool, KeepError> {
        let resumed = match copies::resume(self, sandbox).await {
            Ok(_) => true,
            // Somebody else was faster.
            Err(KeepError::WrongPhase(Phase::Ready | Phase::Executing)) => false,
            Err(error) => return Err(error),
        };
        if resumed {
            self.keeper().set_deadline(&sandbox.tenant, &sandbox.box_id, life)?;
            sandbox.set_life(life);
            sandbox.note("info", "sandbox resumed", json!({}));
        }
        Ok(resumed)
    }

    /// The box behind a sandbox, for its files.
    pub(super) fn live(&self, sandbox: &Sandbox) -> Result<Arc<LiveBox>, No> {
        self.keeper().live(&sandbox.tenant, &sandbox.box_id).map_err(|_| No::gone(sandbox.id()))
    }

    /// The sandbox whose token made a signature. Every token is tried, so that the time tells nothing.
    pub(super) fn by_signature(&self, fits: impl Fn(&Sandbox) -> bool) -> Option<Arc<Sandbox>> {
        let all: Vec<Arc<Sandbox>> = self.all().values().cloned().collect();
        all.into_iter().fold(None, |found, sandbox| if fits(&sandbox) { Some(sandbox) } else { found })
    }

    fn heard(&self, event: &KeeperEvent) {
        let Some(sandbox) = event.box_id.as_ref().and_then(|box_id| self.find(name_of(box_id))) else {
            return;
        };
        match &event.what {
            Happened::BoxEnded { .. } => self.forget(&sandbox),
            // Also one whose time was over: its keeper would give it only as long again.
            Happened::BoxPaused => {
                sandbox.note("info", "sandbox paused", json!({}));
                // An error: it is not paused any more, or gone.
                // On disk its life stands still: what is left of it is what it has when it goes on.
                if self.card(&sandbox).is_some_and(|card| card.phase == Phase::Paused && !card.on_disk) {
                    self.keeper().set_deadline(&sandbox.tenant, &sandbox.box_id, PAUSED_FOR).ok();
                }
            }
            Happened::ExecEnded { exec, .. } => sandbox.processes.ended(*exec),
            Happened::LimitMet { limit } => {
                sandbox.note("warn", "the sandbox met a limit", json!({ "limit": limit }));
            }
            Happened::BoxCreated { .. }
            | Happened::BoxReady { .. }
            | Happened::ExecStarted { .. }
            | Happened::BoxResumed
            | Happened::BoxAdopted
            | Happened::DeadlineNear { .. }
            | Happened::SyscallDenied { .. }
            | Happened::UnexpectedWrite { .. }
            | Happened::NetworkDenied { .. }
            | Happened::NameAsked { .. }
            | Happened::SecretLent { .. }
            | Happened::NetworkUntold { .. }
            | Happened::RulesChanged { .. }
            | Happened::NetworkOpened { .. }
            | Happened::NetworkClosed { .. }
            | Happened::SecretTrouble { .. }
            | Happened::SinkUnreachable { .. }
            | Happened::SinkReached { .. }
            | Happened::AlertsDropped { .. }
            | Happened::PoolPoisoned => {}
        }
    }

    /// Forgets what is gone, where nobody heard of its end.
    fn prune(&self) {
        let all: Vec<Arc<Sandbox>> = self.all().values().cloned().collect();
        for sandbox in all {
            if self.keeper().get(&sandbox.tenant, &sandbox.box_id).is_err() {
                self.forget(&sandbox);
            }
        }
    }
}

fn is_there(card: &BoxCard) -> bool {
    match card.phase {
        Phase::Ready | Phase::Executing | Phase::Paused => true,
        Phase::Provisioning | Phase::Ending | Phase::Gone => false,
    }
}

/// Follows what happens to boxes, until there is no keeper or nobody to tell.
async fn follow(desk: Weak<Desk>, mut events: EventReader) {
    while let Some(item) = events.next().await {
        let Some(desk) = desk.upgrade() else { return };
        match item {
            EventItem::Event(event) => desk.heard(&event),
            EventItem::Missed { .. } => desk.prune(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn a_list_of_templates_that_cannot_be_read_is_told_with_its_reason_and_is_not_an_empty_one() {
        let (scratch, nobody) = (Scratch::new("desk"), || Lying::known_by(Vec::new));
        assert!(opened(Some(scratch.path()), nobody()).is_ok());
        assert!(matches!(opened(None, nobody()), Err(Unopened::NoPlace)));
        std::fs::write(scratch.path().join("templates.json"), "no list").unwrap();
        let no = opened(Some(scratch.path()), nobody()).unwrap_err().answer();
        assert_eq!(no.status(), 500);
        assert!(no.message().contains("line 1"));
    }
}
