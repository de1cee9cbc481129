//! Builds that are at work or wait for it: whose turn it is, what they still need, and how they are ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use blastbox_engine::keeper::Tenant;
use blastbox_wire::event::Hash;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// Builds at work at once, of everybody together. One tenant has one of them, so that nobody waits for all that another asked
/// for.
const AT_ONCE: usize = 2;

#[derive(Debug)]
pub(super) struct InHand {
    all: Mutex<HashMap<String, Held>>,
    turns: Mutex<BTreeMap<Tenant, Arc<Semaphore>>>,
    at_once: Arc<Semaphore>,
}

/// One build.
#[derive(Debug)]
struct Held {
    tenant: Tenant,
    /// What its next step begins with: its tree and its home. Nothing else means them before the build is written down.
    needs: Vec<Hash>,
    task: Option<AbortHandle>,
}

/// A turn to work, over with this.
#[derive(Debug)]
pub(super) struct Turn {
    _own: Option<OwnedSemaphorePermit>,
    _of_all: Option<OwnedSemaphorePermit>,
}

impl Default for InHand {
    fn default() -> Self {
        Self { all: Mutex::default(), turns: Mutex::default(), at_once: Arc::new(Semaphore::new(AT_ONCE)) }
    }
}

impl InHand {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Held>> {
        // Nobody panics while holding it.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A build goes on with this: no sweep takes it away.
    pub(super) fn uses(&self, tenant: &Tenant, build: &str, needs: impl IntoIterator<Item = Hash>) {
        let mut all = self.all();
        let held = Held { tenant: tenant.clone(), needs: Vec::new(), task: None };
        all.entry(build.to_owned()).or_insert(held).needs = needs.into_iter().collect();
    }

    /// Whether a build was started, and is not written down yet.
    pub(super) fn has(&self, build: &str) -> bool {
        self.all().contains_key(build)
    }

    /// What carries a build out.
    pub(super) fn runs(&self, build: &str, task: AbortHandle) {
        if let Some(held) = self.all().get_mut(build) {
            held.task = Some(task);
        }
    }

    /// Ends a build where it stands; its box goes with it.
    pub(super) fn stop(&self, build: &str) {
        if let Some(task) = self.all().get(build).and_then(|held| held.task.as_ref()) {
            task.abort();
        }
    }

    /// A build is written down, and needs nothing more.
    pub(super) fn end(&self, build: &str) {
        self.all().remove(build);
    }

    /// Every tree and home that a build needs, and whose it is.
    pub(super) fn needed(&self) -> BTreeSet<(String, Hash)> {
        let all = self.all();
        let parts = |held: &Held| {
            let tenant = held.tenant.as_str().to_owned();
            held.needs.iter().map(move |part| (tenant.clone(), *part)).collect::<Vec<_>>()
        };
        all.values().flat_map(parts).collect()
    }

    /// Waits until a build of this tenant may work.
    pub(super) async fn turn(&self, tenant: &Tenant) -> Turn {
        let own = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(tenant.clone()).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        // Neither is ever closed.
        let own = own.acquire_owned().await.ok();
        Turn { _own: own, _of_all: Arc::clone(&self.at_once).acquire_owned().await.ok() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_of_builds_under_way_are_needed_until_they_are_written_down() {
        let hand = InHand::default();
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let home = |number: u8| Hash::of([[number].as_slice()]);
        hand.uses(&ann, "a", None);
        assert!(hand.needed().is_empty());
        hand.uses(&ann, "a", Some(home(1)));
        hand.uses(&bob, "b", Some(home(1)));
        hand.uses(&ann, "a", Some(home(2)));
        let needed = [("ann".to_owned(), home(2)), ("bob".to_owned(), home(1))];
        assert_eq!(hand.needed(), needed.into());
        hand.end("a");
        hand.end("b");
        assert!(hand.needed().is_empty());
    }

    #[tokio::test]
    async fn one_tenant_has_one_turn_and_what_is_stopped_gives_its_own_back() {
        let hand = Arc::new(InHand::default());
        let (ann, bob): (Tenant, Tenant) = ("ann".parse().unwrap(), "bob".parse().unwrap());
        let first = hand.turn(&ann).await;
        let (waiting, hers) = (Arc::clone(&hand), ann.clone());
        let second = tokio::spawn(async move { drop(waiting.turn(&hers).await) });
        hand.uses(&ann, "second", None);
        hand.runs("second", second.abort_handle());
        tokio::task::yield_now().await;
        // All that waits for Ann leaves Bob his turn.
        let his = hand.turn(&bob).await;
        assert!(!second.is_finished());
        hand.stop("second");
        assert!(second.await.unwrap_err().is_cancelled());
        drop((first, his));
        drop(hand.turn(&ann).await);
    }
}
